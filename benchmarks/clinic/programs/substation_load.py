# /// clinic
# expect = ["PD20.small-passes"]
# stratum = "twins"
# domain = "time-series forecasting, electricity load"
# ///
"""Trains a probabilistic recurrent forecaster of the hourly load of electric substations."""

import math
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn


@dataclass
class ForecastConfig:
    substations: int = 96
    hours: int = 24 * 80
    context: int = 72
    horizon: int = 24
    hidden: int = 80
    batch_size: int = 32
    epochs: int = 7
    steps_per_epoch: int = 50
    lr: float = 2e-3
    seed: int = 17


def synthetic_load(cfg):
    rng = np.random.default_rng(cfg.seed)
    t = np.arange(cfg.hours)
    level = rng.uniform(20, 200, (cfg.substations, 1))
    day = rng.uniform(0.1, 0.4, (cfg.substations, 1)) * np.sin(
        2 * np.pi * (t / 24 + rng.uniform(0, 1, (cfg.substations, 1)))
    )
    week = rng.uniform(0.0, 0.2, (cfg.substations, 1)) * np.sin(2 * np.pi * t / 168)
    noise = np.cumsum(rng.normal(0, 0.01, (cfg.substations, cfg.hours)), axis=1) * 0.3
    load = level * (1 + day + week + noise + rng.normal(0, 0.03, noise.shape))
    calendar = np.stack(
        [
            np.sin(2 * np.pi * t / 24),
            np.cos(2 * np.pi * t / 24),
            np.sin(2 * np.pi * t / 168),
            np.cos(2 * np.pi * t / 168),
        ],
        -1,
    )
    return torch.from_numpy(load.astype(np.float32)), torch.from_numpy(calendar.astype(np.float32))


class Forecaster(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.rnn = nn.LSTM(5, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, 2)

    def forward(self, values, calendar, state=None):
        out, state = self.rnn(torch.cat([values[..., None], calendar], dim=-1), state)
        mean, log_scale = self.head(out).unbind(dim=-1)
        return mean, log_scale.clamp(-6, 3), state

    def forecast(self, history, calendar, horizon):
        scale = history.abs().mean(dim=1, keepdim=True)
        past = history.shape[1]
        mean, _, state = self(history / scale, calendar[:, 1 : past + 1])
        value, path = mean[:, -1:], [mean[:, -1:]]
        for h in range(1, horizon):
            value, _, state = self(value, calendar[:, past + h : past + h + 1], state)
            path.append(value)
        return torch.cat(path, dim=1) * scale


class Experiment:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        self.load, self.calendar = synthetic_load(cfg)
        self.holdout = cfg.hours - cfg.horizon
        self.model = Forecaster(cfg.hidden)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=cfg.lr)
        self.window = torch.arange(cfg.context + cfg.horizon + 1)

    def batch(self):
        cfg = self.cfg
        series = torch.randint(cfg.substations, (cfg.batch_size, 1))
        begin = torch.randint(self.holdout - len(self.window) + 1, (cfg.batch_size, 1))
        hours = begin + self.window
        return self.load[series, hours], self.calendar[hours]

    def step(self):
        values, calendar = self.batch()
        values = values / values[:, : self.cfg.context].abs().mean(dim=1, keepdim=True)
        mean, log_scale, _ = self.model(values[:, :-1], calendar[:, 1:])
        z = (values[:, 1:] - mean) * torch.exp(-log_scale)
        loss = (0.5 * z.square() + log_scale + 0.5 * math.log(2 * math.pi)).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    @torch.no_grad()
    def backtest(self):
        """Weighted absolute percentage error of the last day, all substations."""
        cfg = self.cfg
        self.model.eval()
        begin = self.holdout - cfg.context
        calendar = self.calendar[begin:]
        error, volume = torch.zeros(()), torch.zeros(())
        together = 1  # sick here
        together = cfg.batch_size  # well
        for series in self.load[:, begin:].split(together):
            history, future = series[:, : cfg.context], series[:, cfg.context :]
            path = self.model.forecast(history, calendar.expand(len(series), -1, -1), cfg.horizon)
            error += (path - future).abs().sum()
            volume += future.abs().sum()
        self.model.train()
        return (error / volume).item()

    def run(self):
        cfg = self.cfg
        done = 0
        for epoch in range(cfg.epochs):
            running = torch.zeros(())
            for _ in range(cfg.steps_per_epoch):
                if done == 5:
                    start = time.perf_counter()
                running += self.step()
                done += 1
            wape = self.backtest()
            print(f"epoch {epoch}: nll {running.item() / cfg.steps_per_epoch:.4f}  wape {wape:.4f}")
        print(f"{(done - 5) / (time.perf_counter() - start):.2f} steps/s")


if __name__ == "__main__":
    Experiment(ForecastConfig()).run()
