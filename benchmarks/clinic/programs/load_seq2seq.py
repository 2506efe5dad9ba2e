# /// clinic
# expect = ["PD10.repeated-work"]
# stratum = "twins"
# domain = "time series forecasting"
# ///
"""Day-ahead load forecasting for substations: GRU encoder, GRU decoder with Bahdanau attention."""

import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    substations: int = 24
    hours: int = 24 * 400
    history: int = 72
    horizon: int = 24
    hidden: int = 128
    batch: int = 32
    steps: int = 240
    lr: float = 2e-3
    log_every: int = 20
    seed: int = 17


def make_load(cfg):
    """Hourly load with daily and weekly shape, weather, and AR noise: (substations, hours, features)."""
    rng = np.random.default_rng(cfg.seed)
    t = np.arange(cfg.hours)
    day, week, year = (np.stack([np.sin(2 * np.pi * t / p), np.cos(2 * np.pi * t / p)]) for p in (24, 168, 8766))
    noise = rng.normal(scale=0.2, size=(cfg.substations, cfg.hours))
    for i in range(1, cfg.hours):
        noise[:, i] += 0.9 * noise[:, i - 1]
    mix = rng.normal(size=(cfg.substations, 6))
    temperature = -8 * year[1] - 3 * day[1] + rng.normal(scale=1.0, size=cfg.hours)
    load = mix @ np.concatenate([day, week, year]) - 0.05 * np.minimum(temperature, 5) + noise
    load = (load - load.mean(axis=1, keepdims=True)) / load.std(axis=1, keepdims=True)
    shared = np.concatenate([day, week, temperature[None] / 10])
    shared = np.broadcast_to(shared, (cfg.substations, *shared.shape))
    return torch.from_numpy(np.concatenate([load[:, None], shared], axis=1).transpose(0, 2, 1).copy()).float()


class Windows:
    """Random (history, horizon) windows, cut from all substations at once with strided views."""

    def __init__(self, series, cfg):
        self.view = series.unfold(1, cfg.history + cfg.horizon, 1)
        self.cfg = cfg

    def batch(self, generator):
        s = torch.randint(self.view.shape[0], (self.cfg.batch,), generator=generator)
        t = torch.randint(self.view.shape[1], (self.cfg.batch,), generator=generator)
        window = self.view[s, t].transpose(1, 2).contiguous()
        return window[:, : self.cfg.history], window[:, self.cfg.history :]


class BahdanauAttention(nn.Module):
    """Additive attention: v^T tanh(W query + U keys), weights over the hours of the history."""

    def __init__(self, hidden):
        super().__init__()
        self.Wa = nn.Linear(hidden, hidden, bias=False)
        self.Ua = nn.Linear(hidden, hidden)
        self.Va = nn.Linear(hidden, 1, bias=False)

    def forward(self, query, keys, projected):
        scores = self.Va(torch.tanh(self.Wa(query).unsqueeze(1) + self.Ua(keys)))  # sick here
        scores = self.Va(torch.tanh(self.Wa(query).unsqueeze(1) + projected))  # well
        weights = scores.squeeze(2).softmax(dim=1)
        return torch.bmm(weights.unsqueeze(1), keys).squeeze(1)


class Decoder(nn.Module):
    """One hour at a time: the previous load, the known calendar and a context from the history go in."""

    def __init__(self, features, hidden):
        super().__init__()
        self.attention = BahdanauAttention(hidden)
        self.cell = nn.GRUCell(features + hidden, hidden)
        self.head = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, memory, h, last, future, teacher_forcing):
        value, forecasts = last, []
        projected = None  # sick
        projected = self.attention.Ua(memory)  # well
        for k in range(future.shape[1]):
            context = self.attention(h, memory, projected)
            h = self.cell(torch.cat([value, future[:, k, 1:], context], dim=1), h)
            forecasts.append(self.head(torch.cat([h, context], dim=1)))
            value = future[:, k, :1] if teacher_forcing else forecasts[-1]
        return torch.cat(forecasts, dim=1)


class Seq2Seq(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.encoder = nn.GRU(features, hidden, batch_first=True)
        self.decoder = Decoder(features, hidden)

    def forward(self, past, future, teacher_forcing=False):
        memory, h = self.encoder(past)
        return self.decoder(memory, h[0], past[:, -1, :1], future, teacher_forcing)


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        series = make_load(cfg)
        split = int(cfg.hours * 0.9)
        self.train_windows = Windows(series[:, :split], cfg)
        self.valid_windows = Windows(series[:, split:], cfg)
        self.model = Seq2Seq(series.shape[2], cfg.hidden)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=cfg.lr, fused=True)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, cfg.steps)
        self.generator = torch.Generator().manual_seed(cfg.seed)

    def train_step(self, past, future):
        forecast = self.model(past, future, teacher_forcing=True)
        loss = F.smooth_l1_loss(forecast, future[:, :, 0])
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        return loss.detach()

    @torch.no_grad()
    def validate(self, batches=4):
        self.model.eval()
        generator = torch.Generator().manual_seed(1)
        errors = []
        for _ in range(batches):
            past, future = self.valid_windows.batch(generator)
            errors.append((self.model(past, future) - future[:, :, 0]).abs().mean())
        self.model.train()
        return torch.stack(errors).mean().item()

    def fit(self):
        started, running = time.time(), torch.zeros(())
        for step in range(1, self.cfg.steps + 1):
            running += self.train_step(*self.train_windows.batch(self.generator))
            if step % self.cfg.log_every == 0:
                loss = running.item() / self.cfg.log_every
                print(
                    f"step {step:4d} loss {loss:.4f} ({(time.time() - started) / step * 1e3:.0f} ms/step)", flush=True
                )
                running.zero_()
        print(f"day-ahead MAE {self.validate():.4f} (standardised units)")


if __name__ == "__main__":
    Trainer(Config()).fit()
