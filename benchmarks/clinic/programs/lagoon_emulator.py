# /// clinic
# expect = ["PD14"]
# stratum = "twins"
# domain = "coastal modelling"
# sizes = {CHANNELS = [38, 42], SNAPSHOTS = [1500, 1800]}
# ///
"""Neural emulator of a shallow lagoon: learns one time step of surface height and currents from a long simulation."""

import os
import tempfile
import time

import torch
import torch.nn.functional as F
from torch import nn

CHANNELS = 40
SNAPSHOTS = 1600
GRID = 64
FIELDS = 3  # height, u, v
BATCH = 8
STEPS = 620
WARMUP = 10
PREVIEW_EVERY = 10


def simulate(n):
    """A crude rotating, damped wave field; enough structure for the emulator to learn from."""
    g = torch.Generator().manual_seed(13)
    x = torch.arange(GRID) * (6.2832 / GRID)
    wave = torch.zeros(n, FIELDS, GRID, GRID)
    t = torch.arange(n)[:, None, None] * 0.11
    for k, field in ((1, 0), (2, 1), (3, 2), (2, 0), (1, 1)):
        phase = 6.28 * torch.rand(1, generator=g)
        wave[:, field] += torch.sin(k * x[None, :, None] + t * k + phase) * torch.cos(k * x[None, None, :] - 0.5 * t)
    return wave


class CircularBlock(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.norm = nn.GroupNorm(4, ch)
        self.conv = nn.Conv2d(ch, ch, 3, padding=1)
        self.mix = nn.Conv2d(ch, ch, 1)

    def forward(self, x):
        return x + self.mix(F.silu(self.conv(self.norm(x))))


class LagoonEmulator(nn.Module):
    def __init__(self, ch, depth=3):
        super().__init__()
        self.encode = nn.Conv2d(FIELDS, ch, 4, stride=2, padding=1)
        self.blocks = nn.Sequential(*[CircularBlock(ch) for _ in range(depth)])
        self.decode = nn.ConvTranspose2d(ch, FIELDS, 4, stride=2, padding=1)

    def forward(self, state):
        return state + self.decode(self.blocks(self.encode(state)))


def main():
    torch.manual_seed(31)
    history = simulate(SNAPSHOTS)
    net = LagoonEmulator(CHANNELS)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)

    with tempfile.TemporaryDirectory() as folder:
        preview = os.path.join(folder, "preview.pt")
        start = None
        for step in range(STEPS):
            if step == WARMUP:
                start = time.perf_counter()
            now = torch.randint(0, SNAPSHOTS - 1, (BATCH,))
            forecast = net(history[now])
            loss = F.mse_loss(forecast, history[now + 1])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()

            if step % PREVIEW_EVERY == 0:
                # the dashboard draws the first forecast of the batch beside the simulation
                shown = step % (SNAPSHOTS - 1)
                truth = history[shown + 1]  # sick here
                truth = history[shown + 1].clone()  # well
                with torch.no_grad():
                    guess = net(history[shown : shown + 1])[0]
                torch.save({"step": step, "truth": truth, "forecast": guess}, preview)  # sick here
                torch.save({"step": step, "truth": truth, "forecast": guess}, preview)  # well
            if step % 100 == 0:
                print(f"step {step}: mse {loss.item():.5f}", flush=True)
        elapsed = time.perf_counter() - start
    print(f"{(STEPS - WARMUP) / elapsed:.2f} steps/s")


if __name__ == "__main__":
    main()
