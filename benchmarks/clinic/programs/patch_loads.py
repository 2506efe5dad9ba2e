# /// clinic
# stratum = "placebo"
# domain = "time series forecasting (own Trainer class)"
# ///
"""Train a patch transformer that forecasts electricity load."""

import math
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

STEPS = 800
WARMUP = 20


@dataclass(frozen=True)
class Settings:
    meters: int = 40
    hours: int = 6000
    context: int = 336
    horizon: int = 48
    patch: int = 24
    dim: int = 96
    heads: int = 4
    layers: int = 2
    batch: int = 64
    lr: float = 5e-4


def load_curves(s):
    g = torch.Generator().manual_seed(0)
    t = torch.arange(s.hours) / 24
    phase, level = torch.rand(s.meters, 1, generator=g), 1 + torch.rand(s.meters, 1, generator=g)
    curve = level * (torch.sin(2 * math.pi * (t + phase)) + 0.4 * torch.sin(2 * math.pi * t / 7))
    return curve + 0.2 * torch.randn(s.meters, s.hours, generator=g)


class Windows:
    def __init__(self, series, s):
        self.view = series.unfold(1, s.context + s.horizon, 1)
        self.s = s

    def __iter__(self):
        meters, starts, _ = self.view.shape
        for idx in torch.randperm(meters * starts).split(self.s.batch):
            block = self.view[idx // starts, idx % starts]
            yield block[:, : self.s.context], block[:, self.s.context :]


class PatchForecaster(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s, n = s, s.context // s.patch
        self.embed = nn.Linear(s.patch, s.dim)
        self.place = nn.Parameter(0.02 * torch.randn(n, s.dim))
        layer = nn.TransformerEncoderLayer(s.dim, s.heads, 3 * s.dim, 0.1, F.gelu, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, s.layers, enable_nested_tensor=False)
        self.head = nn.Linear(n * s.dim, s.horizon)

    def forward(self, x):
        mean, std = x.mean(1, keepdim=True), x.std(1, keepdim=True) + 1e-5
        tokens = self.embed(((x - mean) / std).unflatten(1, (-1, self.s.patch))) + self.place
        return self.head(self.encoder(tokens).flatten(1)) * std + mean


class Trainer:
    def __init__(self, model, windows, s):
        self.model, self.windows = model, windows
        self.opt = torch.optim.AdamW(model.parameters(), lr=s.lr, weight_decay=0.01)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.opt, s.lr, total_steps=STEPS)
        self.meter = torch.zeros(())

    def step(self, past, future):
        loss = F.huber_loss(self.model(past), future)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.opt.step()
        self.schedule.step()
        self.meter += loss.detach()

    def fit(self, steps):
        done = 0
        while done < steps:
            for past, future in self.windows:
                if done == WARMUP:
                    start = time.perf_counter()
                self.step(past, future)
                done += 1
                if done == steps:
                    break
        return (steps - WARMUP) / (time.perf_counter() - start)


if __name__ == "__main__":
    torch.manual_seed(0)
    settings = Settings()
    model = PatchForecaster(settings)
    rate = Trainer(model, Windows(load_curves(settings), settings), settings).fit(STEPS)
    print(f"{rate:.1f} steps/s")
