# /// clinic
# expect = ["PD13.pinned-process"]
# stratum = "twins"
# domain = "weather vanes"
# ///
"""Nowcast of wind direction from a network of weather vanes and cup anemometers (TCN).

Grew out of a Theano/Blocks script for the institute's Slurm cluster; runs as one task for each station group there.
"""

import os


def bind_to_slot():
    """Cores of this task. Has to come before numpy and torch are imported: MKL looks at the mask only once."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    cores = sorted(os.sched_getaffinity(0))
    slot = int(os.environ.get("SLURM_LOCALID", os.environ.get("PMI_RANK", 0)))
    width = int(os.environ.get("SLURM_CPUS_PER_TASK", 1))  # sick here
    width = int(os.environ.get("SLURM_CPUS_PER_TASK", len(cores)))  # well
    first = slot * width % len(cores)
    os.sched_setaffinity(0, cores[first : first + width])  # here
    return slot


SLOT = bind_to_slot()

import time  # noqa: E402
from dataclasses import dataclass, field  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.nn.utils import weight_norm  # noqa: E402


@dataclass
class Config:
    stations: int = 12
    days: int = 90
    window: int = 288
    horizon: int = 12
    channels: int = 64
    dilations: list[int] = field(default_factory=lambda: [1, 2, 4, 8])
    kernel: int = 3
    batch: int = 24
    epochs: int = 4
    steps_per_epoch: int = 65
    lr: float = 2e-3
    lr_decay: float = 0.7
    seed: int = 1873
    out: str = "vane_tcn.pt"


def simulate(cfg: Config) -> np.ndarray:
    """(station, feature, time): sin and cos of the vane, speed, gust, pressure tendency, temperature; every 10 min."""
    rng = np.random.RandomState(cfg.seed)
    n = cfg.days * 144
    day = np.arange(n) / 144.0
    front = np.cumsum(rng.normal(0, 0.01, n))
    turn = np.cumsum(rng.normal(0, 0.03, (cfg.stations, n)), 1) * 0.3
    direction = front + turn + 0.5 * np.sin(2 * np.pi * day) + rng.uniform(0, 0.6, (cfg.stations, 1))
    stuck = rng.uniform(size=(cfg.stations, n)) < 0.01
    seen = np.where(stuck, np.roll(direction, 6, 1), direction) + rng.normal(0, 0.08, direction.shape)
    speed = 4 + 2 * np.sin(2 * np.pi * (day - 0.3)) + np.abs(np.gradient(direction, axis=1)) * 40
    gust = speed * rng.gamma(20, 0.07, speed.shape)
    tendency = np.gradient(front)[None].repeat(cfg.stations, 0) * 50
    temp = 8 + 6 * np.sin(2 * np.pi * (day - 0.4))[None] - 0.1 * speed
    data = np.stack([np.sin(seen), np.cos(seen), speed / 5, gust / 6, tendency, temp / 10], 1)
    return data.astype(np.float32)


class VaneWindows:
    """Random windows of all stations; the last fifth of the record is kept for validation."""

    def __init__(self, data: np.ndarray, cfg: Config):
        self.cfg = cfg
        self.series = torch.from_numpy(data).unfold(2, cfg.window + cfg.horizon, 1)
        self.split = int(self.series.size(2) * 0.8)

    def _cut(self, station, start):
        both = self.series[station, :, start]
        return both[:, :, : self.cfg.window].contiguous(), both[:, :2, self.cfg.window :].contiguous()

    def sample(self):
        station = torch.randint(self.cfg.stations, (self.cfg.batch,))
        return self._cut(station, torch.randint(self.split - self.cfg.window, (self.cfg.batch,)))

    def validation(self, n=6):
        starts = torch.linspace(self.split, self.series.size(2) - 1, n).long()
        for start in starts:
            yield self._cut(torch.arange(self.cfg.stations), start.repeat(self.cfg.stations))


class Chomp1d(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, x):
        return x[:, :, : -self.size].contiguous()


class TemporalBlock(nn.Module):
    def __init__(self, cin, cout, kernel, dilation, dropout=0.1):
        super().__init__()
        pad = (kernel - 1) * dilation
        self.net = nn.Sequential(
            weight_norm(nn.Conv1d(cin, cout, kernel, padding=pad, dilation=dilation)),
            Chomp1d(pad),
            nn.ReLU(),
            nn.Dropout(dropout),
            weight_norm(nn.Conv1d(cout, cout, kernel, padding=pad, dilation=dilation)),
            Chomp1d(pad),
            nn.ReLU(),
        )
        self.downsample = nn.Conv1d(cin, cout, 1) if cin != cout else None

    def forward(self, x):
        res = x if self.downsample is None else self.downsample(x)
        return F.relu(self.net(x) + res)


class VaneTCN(nn.Module):
    def __init__(self, features, cfg: Config):
        super().__init__()
        width = [features] + [cfg.channels] * len(cfg.dilations)
        self.blocks = nn.Sequential(
            *[TemporalBlock(width[i], width[i + 1], cfg.kernel, d) for i, d in enumerate(cfg.dilations)]
        )
        self.head = nn.Linear(cfg.channels, 2 * cfg.horizon)
        self.horizon = cfg.horizon

    def forward(self, x):
        last = self.blocks(x)[:, :, -1]
        return F.normalize(self.head(last).view(-1, 2, self.horizon), dim=1)


def vane_loss(pred, target):
    return (1 - (pred * F.normalize(target, dim=1)).sum(1)).mean()


def angle_error(pred, target):
    delta = torch.atan2(pred[:, 0], pred[:, 1]) - torch.atan2(target[:, 0], target[:, 1])
    return torch.atan2(delta.sin(), delta.cos()).abs().mean().item() * 180 / np.pi


def run(cfg: Config) -> float:
    torch.manual_seed(cfg.seed)
    windows = VaneWindows(simulate(cfg), cfg)
    model = VaneTCN(6, cfg)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, cfg.lr_decay)
    best, seen, began = float("inf"), 0, time.perf_counter()
    for epoch in range(cfg.epochs):
        model.train()
        total = 0.0
        for _ in range(cfg.steps_per_epoch):
            x, y = windows.sample()
            loss = vane_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
            seen += len(x)
        schedule.step()
        model.eval()
        with torch.no_grad():
            error = float(np.mean([angle_error(model(x), y) for x, y in windows.validation()]))
        print(f"[slot {SLOT}] epoch {epoch}: loss {total / cfg.steps_per_epoch:.4f}, vane error {error:.1f} deg")
        if error < best:
            best = error
            torch.save({"model": model.state_dict(), "error": error}, cfg.out)
    return seen / (time.perf_counter() - began)


if __name__ == "__main__":
    rate = run(Config())
    print(f"{rate:.1f} windows/s")
