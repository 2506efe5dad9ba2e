# /// clinic
# expect = ["PD07.float64"]
# stratum = "twins"
# domain = "glacier mill flows"
# ///
"""Forecast of the discharge into glacier mills (moulins) from a week of weather and borehole records.

A mixer network reads a window of hourly records of one moulin and predicts the inflow of the next hours.
"""

import math
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn


@dataclass
class Config:
    moulins: int = 18
    hours: int = 2400
    window: int = 96
    horizon: int = 12
    channels: int = 48
    hidden: int = 96
    blocks: int = 3
    batch: int = 32
    steps: int = 620
    eval_every: int = 155
    eval_batches: int = 6
    lr: float = 2e-3
    seed: int = 11


RECORDS = ["air", "radiation", "rain", "snow", "pressure", "lake", "creep"]


def melt_season(cfg, rng):
    """Hourly records [moulin, hour, record] and discharge [moulin, hour] of a made-up melt season."""
    hour = np.arange(cfg.hours)
    season = np.sin(np.pi * hour / cfg.hours)
    records, discharge = [], []
    for _ in range(cfg.moulins):
        height = rng.uniform(900, 1500)
        day = np.sin(2 * np.pi * (hour - rng.uniform(13, 16)) / 24)
        air = 9 * season - 0.006 * (height - 900) + 3 * day + rng.normal(0, 0.8, cfg.hours)
        radiation = np.clip(520 * season * np.clip(day, 0, None) + rng.normal(0, 30, cfg.hours), 0, None)
        rain = rng.gamma(0.05, 6.0, cfg.hours)
        snow = np.clip(1.5 - np.cumsum(np.clip(air, 0, None)) / 4000, 0, None)
        supply = 0.08 * np.clip(air, 0, None) + 0.002 * radiation + 0.3 * rain
        flow = np.zeros(cfg.hours)
        lake = np.zeros(cfg.hours)
        keep = rng.uniform(0.85, 0.95)
        for h in range(1, cfg.hours):
            lake[h] = keep * lake[h - 1] + supply[h] * (1 - 0.5 * min(snow[h], 1.0))
            flow[h] = 0.7 * flow[h - 1] + 0.3 * lake[h - 1] ** 1.1
        pressure = 30 + 4 * np.sqrt(flow) + rng.normal(0, 0.4, cfg.hours)
        creep = np.abs(rng.normal(0.3, 0.02, cfg.hours)) + 0.02 * pressure
        records.append(np.stack([air, radiation, rain, snow, pressure, lake, creep], axis=1))
        discharge.append(flow)
    return np.stack(records), np.stack(discharge)


def make_windows(cfg):
    rng = np.random.default_rng(cfg.seed)
    records, discharge = melt_season(cfg, rng)
    records = (records - records.mean((0, 1))) / (records.std((0, 1)) + 1e-6)
    discharge = (discharge - discharge.mean()) / discharge.std()
    starts = np.arange(0, cfg.hours - cfg.window - cfg.horizon, 6)
    past = np.stack([records[:, s : s + cfg.window] for s in starts], axis=1)
    ahead = np.stack([discharge[:, s + cfg.window : s + cfg.window + cfg.horizon] for s in starts], axis=1)
    cut = int(0.85 * len(starts))
    train = (past[:, :cut].reshape(-1, *past.shape[2:]), ahead[:, :cut].reshape(-1, cfg.horizon))
    held = (past[:, cut:].reshape(-1, *past.shape[2:]), ahead[:, cut:].reshape(-1, cfg.horizon))
    return train, held


class MixerBlock(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.norm_time = nn.LayerNorm(cfg.channels)
        self.time = nn.Sequential(nn.Linear(cfg.window, cfg.hidden), nn.ReLU(), nn.Linear(cfg.hidden, cfg.window))
        self.norm_chan = nn.LayerNorm(cfg.channels)
        self.chan = nn.Sequential(nn.Linear(cfg.channels, cfg.hidden), nn.ReLU(), nn.Linear(cfg.hidden, cfg.channels))

    def forward(self, x):
        x = x + self.time(self.norm_time(x).transpose(1, 2)).transpose(1, 2)
        return x + self.chan(self.norm_chan(x))


class MoulinMixer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.stem = nn.Linear(len(RECORDS), cfg.channels)
        self.blocks = nn.Sequential(*[MixerBlock(cfg) for _ in range(cfg.blocks)])
        self.norm = nn.LayerNorm(cfg.channels)
        self.head = nn.Linear(2 * cfg.channels, cfg.horizon)

    def forward(self, past):
        x = self.norm(self.blocks(self.stem(past)))
        return self.head(torch.cat([x[:, -1], x.mean(dim=1)], dim=-1))


def to_tensors(pair):
    past, ahead = pair
    return torch.from_numpy(past), torch.from_numpy(ahead)  # sick here
    return torch.from_numpy(past).float(), torch.from_numpy(ahead).float()  # well


@torch.no_grad()
def nash_sutcliffe(model, past, ahead, cfg):
    model.eval()
    rest = spread = 0.0
    for k in range(cfg.eval_batches):
        part = slice(k * cfg.batch, (k + 1) * cfg.batch)
        rest += (model(past[part]) - ahead[part]).square().sum().item()
        spread += (ahead[part] - ahead.mean()).square().sum().item()
    model.train()
    return 1 - rest / spread


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    train, held = make_windows(cfg)
    past, ahead = to_tensors(train)
    held_past, held_ahead = to_tensors(held)
    print(f"{len(past)} windows to train on, {len(held_past)} held out")

    model = MoulinMixer(cfg).double()  # sick here
    model = MoulinMixer(cfg)  # well
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.01)
    warmup = 40
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda s: min(1.0, (s + 1) / warmup) * 0.5 * (1 + math.cos(math.pi * min(s, cfg.steps) / cfg.steps)),
    )
    loss_fn = nn.HuberLoss(delta=1.0)

    began = time.perf_counter()
    for step in range(1, cfg.steps + 1):
        pick = torch.randint(len(past), (cfg.batch,))
        loss = loss_fn(model(past[pick]), ahead[pick])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % cfg.eval_every == 0:
            score = nash_sutcliffe(model, held_past, held_ahead, cfg)
            print(f"step {step:4d}  loss {loss.item():.4f}  NSE {score:.3f}")
            torch.save({"model": model.state_dict(), "step": step}, "moulin.pt")
    rate = cfg.steps * cfg.batch / (time.perf_counter() - began)
    print(f"{rate:.1f} windows/s")


if __name__ == "__main__":
    main()
