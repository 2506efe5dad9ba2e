# /// clinic
# expect = ["PD03.same-result", "PD03.samples-made-again"]
# stratum = "twins"
# domain = "weather"
# ///
"""Short-range forecast of gridded weather fields, 6 hours ahead, from the last four analyses.

The analyses lie in one .npz archive per month (fields, hours of the day, means and deviations), as the export script of
the archive writes them. A little synthetic archive of travelling waves is written first.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


VARIABLES = ["t2m", "msl", "u10", "v10", "z500", "q700"]
LAT, LON = 32, 64
MONTHS = 12
ANALYSES = 60  # per month
HISTORY = 4
LEAD = 1
BATCH = 16
EPOCHS = 10
WIDTH = 32


def write_archive(folder: Path, seed: int = 7) -> list[Path]:
    rng = np.random.default_rng(seed)
    lat = np.linspace(-np.pi / 2, np.pi / 2, LAT)[:, None]
    lon = np.linspace(0, 2 * np.pi, LON, endpoint=False)[None, :]
    paths = []
    for month in range(MONTHS):
        hours = np.arange(ANALYSES) * 6
        fields = np.empty((ANALYSES, len(VARIABLES), LAT, LON), dtype=np.float32)
        for index in range(len(VARIABLES)):
            speed, waves, phase = rng.uniform(0.02, 0.1), rng.integers(2, 7), rng.uniform(0, 2 * np.pi)
            angle = waves * lon + phase - speed * hours[:, None, None]
            fields[:, index] = np.cos(lat) * np.sin(angle) + 0.3 * np.sin(2 * lat + 0.1 * month)
        fields += 0.1 * rng.standard_normal(fields.shape, dtype=np.float32)
        path = folder / f"analysis_{month + 1:02d}.npz"
        np.savez(
            path,
            fields=fields,
            hours=(hours % 24).astype(np.float32),
            mean=fields.mean(axis=(0, 2, 3)),
            std=fields.std(axis=(0, 2, 3)),
        )
        paths.append(path)
    return paths


class AnalysisWindows(Dataset):
    """Windows of HISTORY analyses and the one to be forecast, standardised by the statistics of the month."""

    def __init__(self, paths: list[Path]):
        self.months = [np.load(path) for path in paths]  # sick here
        self.months = [dict(np.load(path)) for path in paths]  # well
        self.index = [(month, first) for month in range(len(paths)) for first in range(ANALYSES - HISTORY - LEAD + 1)]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        month, first = self.index[i]
        archive = self.months[month]
        now = first + HISTORY
        mean, std = archive["mean"][:, None, None], archive["std"][:, None, None]
        window = (archive["fields"][first : now + LEAD] - mean) / std  # here
        hour = 2 * np.pi * archive["hours"][now - 1] / 24
        clock = np.array([np.sin(hour), np.cos(hour)], dtype=np.float32)
        past = window[:HISTORY].reshape(-1, LAT, LON)
        return past, clock, window[-1]


class GlobeConv(nn.Module):
    """3x3 convolution, periodic in longitude and zero-padded at the poles."""

    def __init__(self, inside: int, outside: int):
        super().__init__()
        self.conv = nn.Conv2d(inside, outside, 3, padding=(1, 0))

    def forward(self, x):
        return self.conv(F.pad(x, (1, 1, 0, 0), mode="circular"))


class Forecaster(nn.Module):
    def __init__(self, width: int = WIDTH, depth: int = 3):
        super().__init__()
        self.entry = GlobeConv(HISTORY * len(VARIABLES), width)
        self.clock = nn.Linear(2, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(GlobeConv(width, width), nn.GroupNorm(4, width), nn.GELU()) for _ in range(depth)
        )
        self.exit = nn.Conv2d(width, len(VARIABLES), 1)

    def forward(self, past, clock):
        h = self.entry(past) + self.clock(clock)[:, :, None, None]
        for block in self.blocks:
            h = h + block(h)
        return past[:, -len(VARIABLES) :] + self.exit(h)


def area_weights():
    weights = torch.cos(torch.linspace(-np.pi / 2, np.pi / 2, LAT)).clamp(min=0.05)
    return (weights / weights.mean())[:, None]


def main():
    torch.manual_seed(4)
    with tempfile.TemporaryDirectory() as folder:
        paths = write_archive(Path(folder))
        loader = DataLoader(AnalysisWindows(paths), batch_size=BATCH, shuffle=True, drop_last=True)
        model = Forecaster()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=EPOCHS * len(loader))
        weights = area_weights()
        start = time.perf_counter()
        for epoch in range(EPOCHS):
            running = torch.zeros(())
            for past, clock, target in loader:
                loss = ((model(past, clock) - target).square() * weights).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                running += loss.detach()
            rmse = (running / len(loader)).sqrt().item()
            print(f"epoch {epoch + 1:2d}  rmse {rmse:.4f}  {time.perf_counter() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
