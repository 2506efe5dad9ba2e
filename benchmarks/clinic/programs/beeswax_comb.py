# /// clinic
# expect = ["PD07.float64"]
# stratum = "twins"
# domain = "beeswax cells"
# ///
"""Forecasts the wax temperature in cells of a honeycomb a day ahead.

N-BEATS with trend, seasonality and generic stacks (Oreshkin et al. 2020); trained under Accelerate.
"""

import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from accelerate import Accelerator
from accelerate.utils import set_seed


@dataclass
class Settings:
    cells: int = 120
    hours: int = 1440
    backcast: int = 96
    forecast: int = 24
    hidden: int = 256
    layers: int = 4
    trend_degree: int = 3
    harmonics: int = 8
    generic_dim: int = 16
    stacks: tuple = ("trend", "seasonality", "generic")
    blocks_per_stack: int = 2
    batch_size: int = 512
    epochs: int = 5
    steps_per_epoch: int = 45
    val_windows: int = 2048
    lr: float = 1e-3
    seed: int = 6


def record_comb(cells, hours, rng):
    """Hexagonal comb: brood warms its centre, the weather its rim; neighbours exchange heat through the wax."""
    side = int(np.ceil(np.sqrt(cells)))
    row, col = np.divmod(np.arange(cells), side)
    x, y = col + 0.5 * (row % 2), row * np.sqrt(3) / 2
    radius = np.hypot(x - x.mean(), y - y.mean())
    brood = np.exp(-((radius / (0.45 * radius.max())) ** 2))
    near = np.hypot(x[:, None] - x[None], y[:, None] - y[None]) < 1.1
    mix = near / near.sum(1, keepdims=True)
    t = np.arange(hours)
    weather = 18 + 7 * np.sin(2 * np.pi * (t - 9) / 24) + 3 * np.sin(2 * np.pi * t / (24 * 9))
    weather += np.convolve(rng.normal(0, 1.0, hours + 11), np.ones(12) / 3, mode="valid")
    wax, out = 30 + 4 * brood, np.empty((hours, cells))
    for h in range(hours):
        target = brood * 35 + (1 - brood) * weather[h]
        wax = 0.7 * (mix @ wax) + 0.3 * target + rng.normal(0, 0.15, cells)
        out[h] = wax
    return out.T


def trend_basis(degree, length, start, stop):
    t = np.linspace(start, stop, length)
    return np.stack([t**i for i in range(degree + 1)])


def seasonality_basis(harmonics, length, start, stop):
    t = np.linspace(start, stop, length)
    k = np.arange(1, harmonics + 1)[:, None]
    return np.concatenate([np.ones((1, length)), np.cos(2 * np.pi * k * t), np.sin(2 * np.pi * k * t)])


class BasisBlock(nn.Module):
    """A fully connected trunk whose coefficients are spread over a fixed basis."""

    def __init__(self, s, basis):
        super().__init__()
        past, future = basis
        self.register_buffer("past", torch.from_numpy(past))
        self.register_buffer("future", torch.from_numpy(future))
        self.trunk = make_trunk(s)
        self.theta = nn.Linear(s.hidden, len(past) + len(future), bias=False)
        self.split = [len(past), len(future)]

    def forward(self, x):
        b, f = self.theta(self.trunk(x)).split(self.split, dim=-1)
        return b @ self.past, f @ self.future


class GenericBlock(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.trunk = make_trunk(s)
        self.back = nn.Sequential(nn.Linear(s.hidden, s.generic_dim, bias=False), nn.Linear(s.generic_dim, s.backcast))
        self.fore = nn.Sequential(nn.Linear(s.hidden, s.generic_dim, bias=False), nn.Linear(s.generic_dim, s.forecast))

    def forward(self, x):
        h = self.trunk(x)
        return self.back(h), self.fore(h)


def make_trunk(s):
    widths = [s.backcast] + [s.hidden] * s.layers
    return nn.Sequential(*[m for i, o in zip(widths, widths[1:]) for m in (nn.Linear(i, o), nn.ReLU(inplace=True))])


class NBeats(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.horizon = s.forecast
        ratio = s.forecast / s.backcast
        blocks = []
        for kind in s.stacks:
            for _ in range(s.blocks_per_stack):
                if kind == "generic":
                    blocks.append(GenericBlock(s))
                    continue
                build, size = (trend_basis, s.trend_degree) if kind == "trend" else (seasonality_basis, s.harmonics)
                basis = build(size, s.backcast, -1.0, 0.0), build(size, s.forecast, 0.0, ratio)
                blocks.append(BasisBlock(s, basis))
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x):
        level = x[:, -1:]
        residual, total = x - level, 0.0
        for block in self.blocks:
            back, fore = block(residual)
            residual = residual - back
            total = total + fore
        return level + total


class Windows:
    """Random windows of the recordings: the past that the model sees and the day that follows."""

    def __init__(self, recordings, s, seed):
        series = torch.from_numpy(recordings)  # sick here
        series = torch.from_numpy(recordings).float()  # well
        self.windows = series.unfold(1, s.backcast + s.forecast, 1)
        self.past = s.backcast
        self.generator = torch.Generator().manual_seed(seed)

    def draw(self, count):
        cell = torch.randint(self.windows.shape[0], (count,), generator=self.generator)
        start = torch.randint(self.windows.shape[1], (count,), generator=self.generator)
        both = self.windows[cell, start]
        return both[:, : self.past], both[:, self.past :]


def smape(predicted, actual):
    return 200 * ((predicted - actual).abs() / (predicted.abs() + actual.abs()).clamp(min=1e-6)).mean()


@torch.no_grad()
def validate(model, windows, s):
    model.eval()
    past, future = windows.draw(s.val_windows)
    scores = [smape(model(p), f) for p, f in zip(past.split(s.batch_size), future.split(s.batch_size))]
    model.train()
    return torch.stack(scores).mean().item()


def main(s):
    set_seed(s.seed)
    accelerator = Accelerator(cpu=True)
    recordings = record_comb(s.cells, s.hours, np.random.default_rng(s.seed))
    cut = int(0.8 * s.hours)
    train = Windows(recordings[:, :cut], s, seed=1)
    val = Windows(recordings[:, cut:], s, seed=2)

    model = NBeats(s).double()  # sick here
    model = NBeats(s).float()  # well
    optimizer = torch.optim.Adam(model.parameters(), lr=s.lr)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[3, 4], gamma=0.3)
    model, optimizer = accelerator.prepare(model, optimizer)
    seen, began = 0, time.perf_counter()
    for epoch in range(s.epochs):
        running = 0.0
        for _ in range(s.steps_per_epoch):
            past, future = train.draw(s.batch_size)
            loss = smape(model(past), future)
            optimizer.zero_grad()
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            running += loss.item()
            seen += len(past)
        schedule.step()
        score = validate(model, val, s)
        accelerator.print(f"epoch {epoch}: train sMAPE {running / s.steps_per_epoch:.3f}  val sMAPE {score:.3f}")
    rate = seen / (time.perf_counter() - began)
    accelerator.print(f"{rate:.1f} windows/s")


if __name__ == "__main__":
    main(Settings())
