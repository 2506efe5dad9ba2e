# /// clinic
# expect = ["PD15.growing-container"]
# stratum = "twins"
# domain = "demand forecasting"
# ///
"""Forecasts four weeks of daily demand for each product of a chain of shops.

The network is a stack of residual blocks over the last eight weeks.  The planners do not want a forecast
that leans to one side, so the pinball loss is tilted against the bias that the run has shown so far.
"""

import math
import time
from collections import deque
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Config:
    products: int = 300
    days: int = 900
    history: int = 56
    horizon: int = 28
    hidden: int = 256
    blocks: int = 3
    batch_size: int = 192
    steps: int = 900
    report_every: int = 150
    lr: float = 1e-3
    tilt: float = 0.2
    seed: int = 5


def make_demand(cfg):
    """Daily sales with a weekly and a yearly rhythm, a trend, promotions and Poisson noise."""
    gen = torch.Generator().manual_seed(cfg.seed)
    day = torch.arange(cfg.days, dtype=torch.float32)
    level = 20 + 60 * torch.rand(cfg.products, 1, generator=gen)
    weekly = 1 + 0.4 * torch.rand(cfg.products, 1, generator=gen) * torch.sin(
        2 * math.pi * (day / 7 + torch.rand(cfg.products, 1, generator=gen))
    )
    yearly = 1 + 0.3 * torch.sin(2 * math.pi * (day / 365 + torch.rand(cfg.products, 1, generator=gen)))
    trend = 1 + 0.3 * (torch.rand(cfg.products, 1, generator=gen) - 0.5) * day / cfg.days
    promo = 1 + 0.5 * (torch.rand(cfg.products, cfg.days, generator=gen) < 0.05)
    return torch.poisson(level * weekly * yearly * trend * promo, generator=gen)


class Windows:
    """Random windows of the training days, fixed windows at the end of the series for the report."""

    def __init__(self, demand, cfg):
        self.scale = demand[:, : cfg.days - cfg.horizon].mean(dim=1, keepdim=True)
        self.series = demand / self.scale
        self.cfg = cfg
        self.span = torch.arange(cfg.history + cfg.horizon)
        self.last_start = cfg.days - cfg.horizon - len(self.span)

    def draw(self):
        rows = torch.randint(0, self.cfg.products, (self.cfg.batch_size, 1))
        starts = torch.randint(0, self.last_start + 1, (self.cfg.batch_size, 1))
        window = self.series[rows, starts + self.span]
        return window.split([self.cfg.history, self.cfg.horizon], dim=1)

    def held_out(self):
        window = self.series[:, -len(self.span) :]
        return window.split([self.cfg.history, self.cfg.horizon], dim=1)


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(cfg.history, cfg.hidden),
            nn.ReLU(),
            nn.Linear(cfg.hidden, cfg.hidden),
            nn.ReLU(),
            nn.Linear(cfg.hidden, cfg.hidden),
            nn.ReLU(),
        )
        self.backcast = nn.Linear(cfg.hidden, cfg.history)
        self.forecast = nn.Linear(cfg.hidden, cfg.horizon)

    def forward(self, x):
        hidden = self.body(x)
        return x - self.backcast(hidden), self.forecast(hidden)


class Forecaster(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.blocks))

    def forward(self, x):
        anchor = x.mean(dim=1, keepdim=True)
        residual, total = x - anchor, anchor
        for block in self.blocks:
            residual, part = block(residual)
            total = total + part
        return total


class BiasMonitor:
    """Relative bias of all forecasts of the run: the mean error over the mean absolute error."""

    def __init__(self):
        self.errors = []  # sick
        self.signed = self.absolute = 0.0  # well

    def update(self, error):
        self.errors.append(error)  # sick
        errors = torch.cat(self.errors)  # sick here
        return (errors.mean() / errors.abs().mean()).item()  # sick here
        self.signed += error.sum().item()  # well
        self.absolute += error.abs().sum().item()  # well
        return self.signed / self.absolute  # well


def pinball(error, quantile):
    return torch.maximum(quantile * error, (quantile - 1) * error).mean()


@torch.no_grad()
def held_out_wape(model, windows):
    past, future = windows.held_out()
    error = (future - model(past)).abs() * windows.scale
    return (error.sum() / (future * windows.scale).sum()).item()


def train(cfg):
    torch.manual_seed(cfg.seed)
    windows = Windows(make_demand(cfg), cfg)
    model = Forecaster(cfg)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, cfg.steps, eta_min=cfg.lr / 20)
    monitor = BiasMonitor()
    recent = deque(maxlen=cfg.report_every)
    bias = 0.0

    begun = time.perf_counter()
    for step in range(1, cfg.steps + 1):
        past, future = windows.draw()
        error = future - model(past)
        loss = pinball(error, 0.5 + cfg.tilt * bias)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()

        bias = monitor.update(error.detach())
        recent.append(loss.detach())
        if step % cfg.report_every == 0:
            mean_loss = torch.stack(tuple(recent)).mean().item()
            wape = held_out_wape(model, windows)
            print(f"step {step}: loss {mean_loss:.4f}, bias {bias:+.3f}, held-out WAPE {wape:.3f}")
    return cfg.steps * cfg.batch_size / (time.perf_counter() - begun)


if __name__ == "__main__":
    print(f"{train(Config()):.1f} samples/s")
