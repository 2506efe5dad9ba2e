# /// clinic
# stratum = "decoys"
# domain = "generative"
# sizes = {POINTS = [24, 40], WIDTH = [440, 520]}
# ///
"""A diffusion model of point clouds; its noise schedule is computed exactly."""

import math
import time

import torch
from torch import nn

POINTS = 32
WIDTH = 480
BATCH = 256
LEVELS = 1000


class Schedule:
    def __init__(self):
        ramp = torch.linspace(0, 1, LEVELS, dtype=torch.float64)
        self.kept = torch.cos((ramp + 0.008) / 1.008 * math.pi / 2).square().clamp(1e-6, 1)

    def noised(self, clouds, noise):
        level = torch.randint(0, LEVELS, (len(clouds),))
        kept = self.kept[level]
        log_ratio = torch.log(kept) - torch.log1p(-kept + 1e-9)
        signal, rest = kept.sqrt().float()[:, None], (1 - kept).clamp(0).sqrt().float()[:, None]
        return signal * clouds + rest * noise, (log_ratio / 10).float()[:, None]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.into = nn.Linear(3 * POINTS + 1, WIDTH)
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(3)])
        self.out = nn.Linear(WIDTH, 3 * POINTS)

    def forward(self, clouds, level):
        hidden = nn.functional.silu(self.into(torch.cat([clouds, level], dim=1)))
        for layer in self.layers:
            hidden = hidden + nn.functional.silu(layer(hidden))
        return self.out(hidden)


if __name__ == "__main__":
    torch.manual_seed(0)
    shapes = torch.nn.functional.normalize(torch.randn(4096, POINTS, 3), dim=2).flatten(1)
    schedule, net = Schedule(), Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-4)
    steps = 210
    for step in range(steps):
        if step == 10:
            began = time.perf_counter()
        clouds = shapes[torch.randint(0, len(shapes), (BATCH,))]
        noise = torch.randn_like(clouds)
        mixed, level = schedule.noised(clouds, noise)
        loss = nn.functional.mse_loss(net(mixed, level), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: {loss.item():.4f}")
    print(f"{(steps - 10) * BATCH / (time.perf_counter() - began):.1f} clouds/s")
