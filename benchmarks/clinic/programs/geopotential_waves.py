# /// clinic
# expect = ["PD07"]
# endless = true
# stratum = "twins"
# domain = "weather, spectral neural operator"
# ///
"""Six-hour geopotential forecasts on a lat-lon grid with a small Fourier neural operator."""

import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR


@dataclass(frozen=True)
class Grid:
    lats: int = 64
    lons: int = 128

    @property
    def latitude(self):
        return np.linspace(-90 + 90 / self.lats, 90 - 90 / self.lats, self.lats)

    def area(self, dtype=np.float32):
        w = np.cos(np.deg2rad(self.latitude)).astype(dtype)
        return torch.from_numpy(w / w.mean()).view(1, 1, self.lats, 1)

    def taper(self):
        """Damps the poles before the transform, where the grid lines crowd together."""
        t = 1 - np.exp(-(((90 - np.abs(self.latitude)) / 12.0) ** 2))
        t = t.astype(np.float32)  # well
        return torch.from_numpy(t).view(1, 1, self.lats, 1)  # here


@dataclass
class Setup:
    grid: Grid = Grid()
    levels: int = 5
    width: int = 28
    depth: int = 3
    modes: tuple = (12, 20)
    batch: int = 6
    lr: float = 1.5e-3
    steps: int = 20000
    report: int = 5


class SpectralMix(nn.Module):
    """Truncated global convolution; keeps the caller's precision."""

    def __init__(self, width, grid, modes):
        super().__init__()
        self.modes = modes
        scale = 1 / width
        self.low = nn.Parameter(scale * torch.randn(width, width, *modes, 2))
        self.high = nn.Parameter(scale * torch.randn(width, width, *modes, 2))
        self.register_buffer("taper", grid.taper())

    def mix(self, coefficients, weight):
        weight = torch.view_as_complex(weight).to(coefficients.dtype)
        return torch.einsum("bixy,ioxy->boxy", coefficients, weight)

    def forward(self, x):
        m, n = self.modes
        spectrum = torch.fft.rfft2(x * self.taper, norm="ortho")  # here
        out = torch.zeros_like(spectrum)
        out[:, :, :m, :n] = self.mix(spectrum[:, :, :m, :n], self.low)
        out[:, :, -m:, :n] = self.mix(spectrum[:, :, -m:, :n], self.high)
        return torch.fft.irfft2(out, s=x.shape[-2:], norm="ortho").type_as(x)


class OperatorBlock(nn.Module):
    def __init__(self, width, grid, modes):
        super().__init__()
        self.spectral = SpectralMix(width, grid, modes)
        self.point = nn.Conv2d(width, width, 1)
        self.act = nn.GELU()

    def forward(self, x):
        return x + self.act(self.spectral(x) + self.point(x))


class Forecaster(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.lift = nn.Conv2d(s.levels + 1, s.width, 1)
        self.blocks = nn.ModuleList(OperatorBlock(s.width, s.grid, s.modes) for _ in range(s.depth))
        self.drop = nn.Conv2d(s.width, s.levels, 1)
        lat = torch.tensor(s.grid.latitude / 90, dtype=torch.float32)
        self.register_buffer("lat", lat.view(1, 1, -1, 1).expand(1, 1, s.grid.lats, s.grid.lons).clone())

    def forward(self, state):
        x = self.lift(torch.cat([state, self.lat.expand(len(state), -1, -1, -1)], 1))
        for block in self.blocks:
            x = block(x)
        return state + self.drop(x)


def archive(s, times=240):
    """Rossby-like waves that drift eastwards; stands in for the reanalysis."""
    rng = np.random.default_rng(8)
    lon = np.linspace(0, 2 * np.pi, s.grid.lons, endpoint=False)
    lat = np.deg2rad(s.grid.latitude)
    fields = np.zeros((times, s.levels, s.grid.lats, s.grid.lons), dtype=np.float32)
    for level in range(s.levels):
        for wave in range(2, 8):
            amp, phase, speed = rng.normal(), rng.uniform(0, 6.28), rng.uniform(0.02, 0.2)
            shape = np.cos(lat) ** wave
            for t in range(times):
                fields[t, level] += amp * shape[:, None] * np.cos(wave * lon + phase - speed * t)[None]
    return torch.from_numpy(fields / fields.std())


def main():
    s = Setup()
    torch.manual_seed(1)
    states, area = archive(s), s.grid.area()
    model = Forecaster(s)
    optimizer = torch.optim.AdamW(model.parameters(), lr=s.lr, weight_decay=1e-5)
    schedule = CosineAnnealingLR(optimizer, s.steps)
    since = time.perf_counter()
    for step in range(1, s.steps + 1):
        start = torch.randint(0, len(states) - 1, (s.batch,))
        forecast = model(states[start])
        loss = (area * (forecast - states[start + 1]) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % s.report == 0:
            now = time.perf_counter()
            print(f"{step:6d}  rmse {loss.item() ** 0.5:.4f}  {s.report / (now - since):.2f} steps/s", flush=True)
            since = now


if __name__ == "__main__":
    main()
