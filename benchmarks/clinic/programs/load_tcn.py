# /// clinic
# expect = ["PD15.growing-hooks"]
# stratum = "twins"
# domain = "time series"
# ///
"""Day-ahead forecast of electricity load with a temporal convolutional network.

Hourly readings of a few hundred meters, a week as the input, the next day as the target.
Every validation also looks at how the blocks are used: spread of the outputs, share of dead units.
"""

import time
from collections import defaultdict

import torch
import torch.nn.functional as F
from torch import nn


METERS, HOURS = 200, 24 * 7 * 20
CONTEXT, HORIZON = 168, 24
CHANNELS, BLOCKS, KERNEL = 48, 4, 3
BATCH, STEPS, VALIDATE_EVERY = 32, 1000, 40


def make_load():
    """Daily and weekly rhythm, a slow drift, noise that is correlated in time."""
    hour = torch.arange(HOURS, dtype=torch.float32)
    phase = torch.rand(METERS, 1) * 6.28
    daily = torch.sin(hour * 6.2832 / 24 + phase)
    weekly = 0.5 * torch.sin(hour * 6.2832 / 168 + 2 * phase)
    drift = torch.randn(METERS, HOURS).cumsum(1) * 0.01
    noise = F.avg_pool1d(torch.randn(METERS, 1, HOURS + 4), 5, 1).squeeze(1) * 0.5
    load = daily * (0.5 + torch.rand(METERS, 1)) + weekly + drift + noise
    return (load - load.mean(1, keepdim=True)) / load.std(1, keepdim=True)


class Windows:
    """Random windows out of a part of the time axis."""

    def __init__(self, load):
        self.windows = load.unfold(1, CONTEXT + HORIZON, 1)

    def draw(self, count):
        meter = torch.randint(self.windows.shape[0], (count,))
        start = torch.randint(self.windows.shape[1], (count,))
        window = self.windows[meter, start]
        return window[:, :CONTEXT], window[:, CONTEXT:]


class Block(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.pad = (KERNEL - 1) * dilation
        self.filter = nn.Conv1d(channels, channels, KERNEL, dilation=dilation)
        self.mix = nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        hidden = F.relu(self.filter(F.pad(x, (self.pad, 0))))
        return F.relu(x + self.mix(hidden))


class LoadTCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.inlet = nn.Conv1d(1, CHANNELS, 1)
        self.blocks = nn.ModuleList(Block(CHANNELS, 2**i) for i in range(BLOCKS))
        self.outlet = nn.Linear(2 * CHANNELS, HORIZON)

    def forward(self, x):
        level = x[:, -24:].mean(1, keepdim=True)
        hidden = self.inlet((x - level)[:, None])
        for block in self.blocks:
            hidden = block(hidden)
        summary = torch.cat([hidden[:, :, -1], hidden.mean(-1)], dim=1)
        return self.outlet(summary) + level


class BlockMonitor:
    """Collects statistics of the outputs of the blocks."""

    def __init__(self, model):
        self.spread = defaultdict(list)
        self.dead = defaultdict(list)
        self.handles = []
        for index, block in enumerate(model.blocks):
            block.register_forward_hook(self.recorder(index))  # sick here
            self.handles.append(block.register_forward_hook(self.recorder(index)))  # well

    def recorder(self, index):
        def record(module, inputs, output):
            output = output.detach()
            self.spread[index].append(output.std().item())
            self.dead[index].append((output.amax(dim=(0, 2)) <= 0).float().mean().item())

        return record

    def close(self):
        for handle in self.handles:
            handle.remove()

    def summary(self):
        parts = []
        for index in sorted(self.spread):
            spread = sum(self.spread[index]) / len(self.spread[index])
            dead = sum(self.dead[index]) / len(self.dead[index])
            parts.append(f"{spread:.2f}/{dead:.0%}")
        return " ".join(parts)


@torch.no_grad()
def validate(model, batches):
    model.eval()
    monitor = BlockMonitor(model)  # here
    errors = [F.l1_loss(model(x), y) for x, y in batches]
    monitor.close()  # well
    model.train()
    return torch.stack(errors).mean().item(), monitor.summary()


def train(model, windows, validation):
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    start = time.monotonic()
    for step in range(1, STEPS + 1):
        x, y = windows.draw(BATCH)
        loss = F.smooth_l1_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % VALIDATE_EVERY == 0:
            error, blocks = validate(model, validation)  # here
            print(
                f"step {step} loss {loss.item():.4f} validation MAE {error:.4f} "
                f"blocks {blocks} {time.monotonic() - start:.1f} s",
                flush=True,
            )


def main():
    torch.manual_seed(1)
    load = make_load()
    cut = HOURS * 4 // 5
    held_out = Windows(load[:, cut:])
    validation = [held_out.draw(64) for _ in range(2)]
    model = LoadTCN()
    train(model, Windows(load[:, :cut]), validation)


if __name__ == "__main__":
    main()
