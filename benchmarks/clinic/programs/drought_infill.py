# /// clinic
# expect = ["PD03.scattered-samples", "PD03.per-sample-indexing"]
# stratum = "twins"
# domain = "climate: gap filling in daily records per grid cell"
# ///
"""Fill gaps in daily station-like climate records: soil moisture, rain, temperature and radiation per grid cell.

A reanalysis cube has the axes variable, day, latitude and longitude.  We train a small
convolutional network that sees the four-year record of one cell with a few weeks blanked out and restores them.
"""

import math
import sys
import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler


@dataclass
class Config:
    days: int = 1460
    lat: int = 96
    lon: int = 96
    variables: int = 4
    width: int = 32
    depth: int = 2
    stretch: int = 20
    batch: int = 64
    steps: int = 1800
    gap_days: int = 45
    gaps: int = 4
    lr: float = 2e-3
    report: int = 100
    seed: int = 11


def parse(argv):
    """--name value pairs override the defaults above."""
    cfg = Config()
    for flag, value in zip(argv[::2], argv[1::2]):
        name = flag.lstrip("-")
        setattr(cfg, name, type(getattr(cfg, name))(value))
    return cfg


def simulate_archive(cfg):
    """A synthetic reanalysis: seasonal cycle by latitude, regional weather, local noise."""
    gen = torch.Generator().manual_seed(cfg.seed)
    day = torch.arange(cfg.days).view(1, -1, 1, 1)
    phase = torch.rand(cfg.variables, 1, 1, 1, generator=gen) * 2 * math.pi
    tilt = torch.linspace(0.3, 1.0, cfg.lat).view(1, 1, -1, 1)
    season = torch.sin(2 * math.pi * day / 365.25 + phase) * tilt
    weather = torch.randn(cfg.variables, cfg.days, 1, 1, generator=gen)
    weather = torch.nn.functional.avg_pool1d(weather.squeeze(-1).transpose(1, 2), 9, 1, 4).transpose(1, 2).unsqueeze(-1)
    exposure = torch.rand(1, 1, cfg.lat, cfg.lon, generator=gen)
    cube = torch.randn(cfg.variables, cfg.days, cfg.lat, cfg.lon, generator=gen).mul_(0.15)
    return cube.add_(season).addcmul_(weather, exposure)


class CellRecords(Dataset):
    """The record of one grid cell: variables x days."""

    def __init__(self, cube):
        self.lat, self.lon = cube.shape[2:]
        by_cell = cube.permute(2, 3, 0, 1)
        self.records = by_cell  # sick here
        self.records = by_cell.contiguous()  # well

    def __len__(self):
        return self.lat * self.lon

    def __getitem__(self, cell):
        row, column = divmod(cell, self.lon)
        return self.records[row, column]  # here


class GapMaker:
    def __init__(self, cfg):
        self.cfg = cfg
        self.day = torch.arange(cfg.days)

    def __call__(self, records):
        start = torch.randint(0, self.cfg.days - self.cfg.gap_days, (len(records), self.cfg.gaps, 1))
        since = self.day - start
        missing = ((since >= 0) & (since < self.cfg.gap_days)).any(1, keepdim=True).to(records.dtype)
        return records * (1 - missing), missing


class ResidualBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv1d(width, width, 5, padding=2)
        self.mix = nn.Conv1d(width, width, 1)

    def forward(self, x):
        return x + self.mix(torch.relu(self.conv(x)))


class InfillNet(nn.Module):
    """Cuts the record into stretches of days, convolves over the stretches and unfolds the days again."""

    def __init__(self, cfg):
        super().__init__()
        self.stretch = cfg.stretch
        self.stem = nn.Linear((cfg.variables + 1) * cfg.stretch, cfg.width)
        self.blocks = nn.Sequential(*(ResidualBlock(cfg.width) for _ in range(cfg.depth)))
        self.head = nn.Linear(cfg.width, cfg.variables * cfg.stretch)

    def forward(self, seen, missing):
        x = torch.cat([seen, missing], 1).unflatten(2, (-1, self.stretch)).transpose(1, 2).flatten(2)
        x = self.blocks(self.stem(x).transpose(1, 2)).transpose(1, 2)
        out = self.head(x).unflatten(2, (-1, self.stretch))
        return out.transpose(1, 2).reshape(seen.shape)


def train(cfg):
    torch.manual_seed(cfg.seed)
    records = CellRecords(simulate_archive(cfg))
    order = RandomSampler(records, replacement=True, num_samples=cfg.steps * cfg.batch)
    loader = DataLoader(records, batch_size=cfg.batch, sampler=order, drop_last=True)
    make_gaps = GapMaker(cfg)
    model = InfillNet(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, cfg.lr, total_steps=cfg.steps)
    begun = time.perf_counter()
    for step, record in enumerate(loader, 1):
        seen, missing = make_gaps(record)
        restored = model(seen, missing)
        loss = ((restored - record).square() * missing).sum() / (missing.sum() * cfg.variables)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % cfg.report == 0:
            print(f"step {step:5d}  gap mse {loss.item():.4f}  {time.perf_counter() - begun:6.1f} s", flush=True)


if __name__ == "__main__":
    train(parse(sys.argv[2:]))
