# /// clinic
# expect = ["PD10.enlarged-first"]
# stratum = "twins"
# domain = "scientific surrogate, flow downscaling"
# ///
"""Trains a convolutional surrogate that refines coarse two-dimensional flow fields under a divergence penalty."""

import math
import time
from dataclasses import dataclass

import torch
from torch import nn
import torch.nn.functional as F


@dataclass(frozen=True)
class Config:
    fine: int = 128
    factor: int = 4
    width: int = 48
    blocks: int = 2
    batch: int = 8
    samples: int = 160
    steps: int = 300
    lr: float = 8e-4
    divergence_weight: float = 0.05
    seed: int = 3


def simulate_fields(n, size, generator):
    """Random incompressible velocity (u, v) from a band-limited stream function, and its passive tracer."""
    kx = torch.fft.fftfreq(size)[:, None] * size
    ky = torch.fft.rfftfreq(size)[None, :] * size
    k2 = kx.square() + ky.square()
    envelope = torch.exp(-k2 / 90.0) * (k2 > 0)
    spectrum = torch.fft.rfft2(torch.randn(n, size, size, generator=generator)) * envelope
    scale = 2 * math.pi / size
    u = torch.fft.irfft2(1j * ky * scale * spectrum, s=(size, size))
    v = torch.fft.irfft2(-1j * kx * scale * spectrum, s=(size, size))
    tracer = torch.fft.irfft2(spectrum * torch.exp(-k2 / 200.0), s=(size, size))
    fields = torch.stack([u, v, tracer], dim=1)
    return fields / fields.std(dim=(0, 2, 3), keepdim=True)


def divergence(velocity):
    u, v = velocity[:, 0], velocity[:, 1]
    dvdy = v[:, 1:-1, 2:] - v[:, 1:-1, :-2]
    dudx = u[:, 2:, 1:-1] - u[:, :-2, 1:-1]
    return 0.5 * (dudx + dvdy)


class ResidualConv(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1, padding_mode="zeros")
        self.norm = nn.GroupNorm(6, width)

    def forward(self, x):
        return x + F.silu(self.norm(self.conv(x)))


class DownscalingNet(nn.Module):
    def __init__(self, channels, width, blocks, factor):
        super().__init__()
        self.encode = nn.Conv2d(channels, width, 3, padding=1)
        self.trunk = nn.Sequential(*[ResidualConv(width) for _ in range(blocks)])
        self.decode = nn.Sequential(
            nn.Upsample(scale_factor=factor, mode="bilinear", align_corners=False),  # sick here
            nn.Conv2d(width, channels, kernel_size=1),
            nn.Upsample(scale_factor=factor, mode="bilinear", align_corners=False),  # well
        )

    def forward(self, coarse):
        return self.decode(self.trunk(F.silu(self.encode(coarse))))


@torch.no_grad()
def evaluate(model, coarse, fine):
    model.eval()
    prediction = model(coarse)
    model.train()
    return F.mse_loss(prediction, fine).sqrt().item()


def train(cfg):
    torch.manual_seed(cfg.seed)
    generator = torch.Generator().manual_seed(cfg.seed)
    fine = simulate_fields(cfg.samples + 8, cfg.fine, generator)
    coarse = F.avg_pool2d(fine, cfg.factor)
    held_coarse, held_fine = coarse[-8:], fine[-8:]

    model = DownscalingNet(3, cfg.width, cfg.blocks, cfg.factor)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, cfg.steps)

    start = time.perf_counter()
    order = torch.empty(0, dtype=torch.long)
    for step in range(1, cfg.steps + 1):
        if len(order) < cfg.batch:
            order = torch.randperm(cfg.samples, generator=generator)
        idx, order = order[: cfg.batch], order[cfg.batch :]
        prediction = model(coarse[idx])
        data_loss = F.mse_loss(prediction, fine[idx])
        loss = data_loss + cfg.divergence_weight * divergence(prediction).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step == 5:
            start = time.perf_counter()
        if step % 60 == 0:
            rmse = evaluate(model, held_coarse, held_fine)
            print(f"step {step:4d}  loss {loss.item():.5f}  held-out rmse {rmse:.4f}")
    return (cfg.steps - 5) / (time.perf_counter() - start)


if __name__ == "__main__":
    print(f"{train(Config()):.2f} steps/s")
