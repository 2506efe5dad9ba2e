# /// clinic
# expect = ["PD15.growing-hooks"]
# stratum = "twins"
# domain = "wind-farm power"
# ///
"""Short-term power forecast for all turbines of a wind farm from the last hours of SCADA signals."""

import math
import time

import torch
import torch.nn.functional as F
from torch import nn

SETTINGS = dict(
    turbines=32,
    signals=4,
    history=48,
    horizon=12,
    hours=9000,
    width=64,
    batch=32,
    epochs=20,
    steps_per_epoch=60,
    lr=1e-3,
    seed=8,
)


def simulate_farm(turbines, hours, generator):
    """Regional wind with a daily cycle, wake losses by direction, a cubic power curve."""
    t = torch.arange(hours, dtype=torch.float32)
    gusts = torch.randn(1, 1, hours + 35, generator=generator)
    region = 8 + 2 * torch.sin(2 * math.pi * t / 144) + 9 * F.avg_pool1d(gusts, 36, stride=1)[0, 0]
    direction = (0.02 * torch.randn(hours, generator=generator)).cumsum(0)
    bearing = torch.linspace(0, 2 * math.pi, turbines)
    wake = 1 - 0.25 * torch.cos(direction[:, None] - bearing).clamp_min(0) ** 4
    speed = (region[:, None] * wake + 0.4 * torch.randn(hours, turbines, generator=generator)).clamp_min(0)
    power = ((speed - 3) / 9).clamp(0, 1) ** 3
    ambient = torch.sin(2 * math.pi * t / 144)[:, None].expand(-1, turbines)
    signals = torch.stack([speed / 12, torch.sin(direction)[:, None].expand(-1, turbines), ambient, power], dim=-1)
    return signals.contiguous(), power


class WakeMixer(nn.Module):
    """Exchanges information between turbines, then within each turbine."""

    def __init__(self, turbines, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.across = nn.Sequential(nn.Linear(turbines, 2 * turbines), nn.ReLU(), nn.Linear(2 * turbines, turbines))
        self.within = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.across(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.within(self.norm2(x))


class FarmForecaster(nn.Module):
    def __init__(self, turbines, signals, history, horizon, width, depth=3):
        super().__init__()
        self.encode = nn.Linear(history * signals, width)
        self.mixers = nn.ModuleList([WakeMixer(turbines, width) for _ in range(depth)])
        self.decode = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, horizon))

    def forward(self, window):
        x = self.encode(window)
        for mixer in self.mixers:
            x = mixer(x)
        return self.decode(x)


class UnitActivity:
    """Share of hidden units that stay silent on a set of windows, per mixer."""

    def __init__(self, model):
        self.counts = [torch.zeros(m.within[0].out_features) for m in model.mixers]
        self.handles = []  # well
        for index, mixer in enumerate(model.mixers):
            mixer.within[1].register_forward_hook(self.recorder(index))  # sick here
            self.handles.append(mixer.within[1].register_forward_hook(self.recorder(index)))  # well

    def recorder(self, index):
        def record(module, inputs, output):
            self.counts[index] += (output.detach() > 0).flatten(0, 1).sum(0)

        return record

    def silent(self):
        for handle in self.handles:  # well
            handle.remove()  # well
        return [(count == 0).float().mean().item() for count in self.counts]


class Windows:
    def __init__(self, signals, power, history, horizon):
        self.signals, self.power = signals, power
        self.past, self.ahead = torch.arange(history), history + torch.arange(horizon)

    def take(self, starts):
        past = self.signals[starts[:, None] + self.past]
        ahead = self.power[starts[:, None] + self.ahead]
        return past.permute(0, 2, 1, 3).flatten(2), ahead.transpose(1, 2)


def validate(model, windows, starts):
    model.eval()
    activity = UnitActivity(model)
    errors = []
    with torch.no_grad():
        for part in starts.split(128):
            past, ahead = windows.take(part)
            errors.append((model(past) - ahead).abs().mean())
    model.train()
    return torch.stack(errors).mean().item(), activity.silent()


def train(s):
    generator = torch.Generator().manual_seed(s["seed"])
    torch.manual_seed(s["seed"])
    signals, power = simulate_farm(s["turbines"], s["hours"], generator)
    windows = Windows(signals, power, s["history"], s["horizon"])
    last = s["hours"] - s["history"] - s["horizon"]
    held_out = torch.arange(last - 1000, last, 4)
    model = FarmForecaster(s["turbines"], s["signals"], s["history"], s["horizon"], s["width"])
    optimizer = torch.optim.Adam(model.parameters(), lr=s["lr"], fused=True)
    total = s["epochs"] * s["steps_per_epoch"]
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)
    step, start = 0, None
    for epoch in range(s["epochs"]):
        for _ in range(s["steps_per_epoch"]):
            past, ahead = windows.take(torch.randint(0, last - 1100, (s["batch"],), generator=generator))
            loss = F.smooth_l1_loss(model(past), ahead, beta=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            if step == 5:
                start = time.perf_counter()
        error, silent = validate(model, windows, held_out)
        shares = ", ".join(f"{share:.2f}" for share in silent)
        print(f"epoch {epoch:2d}: MAE {error:.4f} of rated power, silent units {shares}")
    return (step - 5) / (time.perf_counter() - start)


if __name__ == "__main__":
    print(f"{train(SETTINGS):.2f} steps/s")
