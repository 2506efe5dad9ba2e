# /// clinic
# stratum = "decoys"
# domain = "time series"
# sizes = {WIDTH = [440, 520], HORIZON = [20, 28]}
# ///
"""Forecasts energy demand and keeps exact running statistics of its errors."""

import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

WIDTH = 480
HORIZON = 24
PAST = 168


class Errors:
    """Sums in double precision: a million small numbers are added."""

    def __init__(self):
        self.count = 0
        self.total = torch.zeros(HORIZON, dtype=torch.float64)
        self.squares = torch.zeros(HORIZON, dtype=torch.float64)

    @torch.no_grad()
    def add(self, forecast, demand):
        difference = (forecast - demand).double()
        self.count += len(difference)
        self.total += difference.sum(0)
        self.squares += difference.square().sum(0)

    def __str__(self):
        mean = self.total / self.count
        return f"bias {mean.mean():.4f}, deviation {(self.squares / self.count - mean**2).sqrt().mean():.4f}"


def windows(days):
    hours = np.arange(24 * days)
    demand = np.sin(hours * 2 * np.pi / 24) + 0.5 * np.sin(hours * 2 * np.pi / 168)
    demand = (demand + 0.1 * np.random.default_rng(0).normal(size=len(hours))).astype(np.float32)
    view = np.lib.stride_tricks.sliding_window_view(demand, PAST + HORIZON)
    return torch.from_numpy(view.copy())


def train(epochs=6, batch=256):
    torch.manual_seed(0)
    data = TensorDataset(windows(400))
    loader = DataLoader(data, batch_size=None, sampler=BatchSampler(RandomSampler(data), batch, drop_last=True))
    model = nn.Sequential(
        nn.Linear(PAST, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, HORIZON)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        if epoch == 1:
            began = time.perf_counter()
        errors = Errors()
        for (window,) in loader:
            forecast = model(window[:, :PAST])
            loss = nn.functional.mse_loss(forecast, window[:, PAST:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            errors.add(forecast, window[:, PAST:])
        print(f"epoch {epoch}: {errors}")
    return (epochs - 1) * len(loader) * batch / (time.perf_counter() - began)


print(f"{train():.1f} windows/s")
