# /// clinic
# stratum = "decoys"
# domain = "diffusion"
# ///
"""Trains a small denoising diffusion model on synthetic sprites."""

import copy
import gc
import time

import torch
import torch.nn.functional as F
from torch import nn

SIZE = 16
WIDTH = 40
NOISE_LEVELS = 200
BATCH = 32
STEPS = 420
WARMUP = 20
EMA = 0.995


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Embedding(NOISE_LEVELS, WIDTH), nn.Linear(WIDTH, WIDTH), nn.SiLU())
        self.enter = nn.Conv2d(1, WIDTH, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.GroupNorm(4, WIDTH), nn.SiLU(), nn.Conv2d(WIDTH, WIDTH, 3, padding=1)) for _ in range(5)
        )
        self.leave = nn.Conv2d(WIDTH, 1, 3, padding=1)

    def forward(self, x, t):
        h = self.enter(x)
        shift = self.time(t)[:, :, None, None]
        for block in self.blocks:
            h = h + block(h + shift)
        return self.leave(h)


class Sprites:
    def __init__(self, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.axis = torch.arange(SIZE).float()

    def draw(self):
        cx, cy, r = torch.rand(3, BATCH, 1, 1, generator=self.gen) * 8 + 4
        gap = (self.axis[None, :, None] - cy) ** 2 + (self.axis[None, None, :] - cx) ** 2
        return torch.tanh((r / 2) ** 2 - gap).unsqueeze(1)


class Diffusion:
    def __init__(self):
        self.model = Denoiser()
        self.average = copy.deepcopy(self.model).requires_grad_(False)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-4, fused=True)
        self.keep = torch.cumprod(1 - torch.linspace(1e-4, 0.05, NOISE_LEVELS), 0)
        self.losses = []

    def step(self, x):
        t = torch.randint(0, NOISE_LEVELS, (BATCH,))
        noise = torch.randn_like(x)
        a = self.keep[t][:, None, None, None]
        loss = F.mse_loss(self.model(a.sqrt() * x + (1 - a).sqrt() * noise, t), noise)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(self.average.parameters()), list(self.model.parameters()), 1 - EMA)
        self.losses.append(loss.item())


def main():
    torch.manual_seed(0)
    run, sprites = Diffusion(), Sprites(4)
    for step in range(STEPS):
        if step == WARMUP:
            start = time.perf_counter()
        run.step(sprites.draw())
        if (step + 1) % 200 == 0:
            gc.collect()
    rate = (STEPS - WARMUP) * BATCH / (time.perf_counter() - start)
    print(f"{rate:.1f} samples/s")


if __name__ == "__main__":
    main()
