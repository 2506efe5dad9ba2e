# /// clinic
# expect = ["PD03.workers-restarted"]
# stratum = "twins"
# domain = "greenhouse vents"
# ///
"""Greenhouse vents: forecasts of air temperature and humidity for the next hours from climate logs and sash positions.

Windows are cut from the logs by loader workers (gaps filled, outdoor weather joined, sensor dropout); the model is a
convolutional front end with a GRU.  State is kept in run_dir, a run continues from there with resume=True.
"""

import json
import math
import random
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class LoaderConfig:
    workers: int = 2
    start_method: str = "spawn"
    prefetch: int = 4
    batch: int = 48


@dataclass
class Config:
    data_version: str = "bay7-2026-10"
    seed: int = 20261
    days: int = 120
    history: int = 72
    horizon: int = 18
    windows_per_epoch: int = 2160
    held_out: int = 384
    hidden: int = 112
    epochs: int = 5
    lr: float = 1.5e-3
    clip: float = 1.0
    ema: float = 0.99
    patience: int = 5
    tolerance: int = 5
    resume: bool = False
    run_dir: str = "vent_run"
    loader: LoaderConfig = field(default_factory=LoaderConfig)


def climate_log(cfg):
    """Ten-minute records: air, humidity, CO2, lee sash, wind sash, screen, outdoor air, wind, radiation."""
    rng = np.random.default_rng(cfg.seed)
    t = np.arange(cfg.days * 144)
    hour = (t % 144) / 6
    sun = np.clip(np.sin((hour - 6) / 12 * np.pi), 0, None) * np.repeat(rng.uniform(0.2, 1.0, cfg.days), 144)
    outdoor = 9 + 7 * np.sin((hour - 9) / 24 * 2 * np.pi) + np.repeat(rng.normal(0, 3, cfg.days), 144)
    wind = np.abs(np.convolve(rng.normal(0, 2, len(t)), np.ones(12) / 4, "same"))
    air, wet, rows = 19.0, 70.0, []
    for i in range(len(t)):
        lee = min(1.0, max(0.0, (air - 21) / 6))
        gust = max(0.0, lee - wind[i] / 10)
        air += 0.9 * sun[i] - (0.02 + 0.10 * lee + 0.08 * gust) * (air - outdoor[i]) + 0.15 * max(0.0, 18 - air)
        wet += 1.2 * sun[i] + 0.4 - 0.02 * (0.4 + lee + gust) * (wet - 40)
        rows.append((air, wet, 420 + 500 * (1 - lee), lee, gust, float(sun[i] > 0.8), outdoor[i], wind[i], sun[i]))
    table = np.asarray(rows, dtype=np.float32)
    table += 0.02 * table.std(0) * rng.normal(size=table.shape).astype(np.float32)
    table = (table - table.mean(0)) / table.std(0)
    table[rng.random(table.shape) < 0.01] = np.nan
    return table


class VentWindows(Dataset):
    def __init__(self, table, cfg, starts, augment):
        self.table, self.cfg, self.starts, self.augment = table, cfg, starts, augment

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, i):
        span = self.cfg.history + self.cfg.horizon
        window = self.table[self.starts[i] : self.starts[i] + span].copy()
        steps = np.arange(span)
        for column in window.T:
            gap = np.isnan(column)
            if gap.any() and not gap.all():
                column[gap] = np.interp(steps[gap], steps[~gap], column[~gap])
        past, future = window[: self.cfg.history], window[self.cfg.history :, :2]
        if self.augment:
            past[:, random.randrange(past.shape[1])] *= random.random() > 0.1
            past += np.random.normal(0, 0.01, past.shape).astype(np.float32)
        return torch.from_numpy(np.nan_to_num(past)), torch.from_numpy(np.nan_to_num(future))


def seed_worker(index):
    seed = torch.initial_seed() % 2**32
    random.seed(seed)
    np.random.seed(seed)


def build_loaders(cfg):
    table = climate_log(cfg)
    rng = np.random.default_rng(cfg.seed + 1)
    span = cfg.history + cfg.horizon
    border = int(len(table) * 0.85)
    starts = rng.choice(border - span, cfg.windows_per_epoch, replace=False)
    held = rng.choice(np.arange(border, len(table) - span), cfg.held_out, replace=False)
    options = dict(num_workers=cfg.loader.workers, multiprocessing_context=cfg.loader.start_method)  # here
    options |= dict(prefetch_factor=cfg.loader.prefetch, worker_init_fn=seed_worker)
    options |= dict(persistent_workers=True)  # well
    generator = torch.Generator().manual_seed(cfg.seed)
    train = DataLoader(
        VentWindows(table, cfg, starts, True), cfg.loader.batch, True, generator=generator, drop_last=True, **options
    )
    return train, DataLoader(VentWindows(table, cfg, held, False), 128)


class VentForecaster(nn.Module):
    def __init__(self, cfg, channels=9, targets=2):
        super().__init__()
        h = cfg.hidden
        self.front = nn.Sequential(
            nn.Conv1d(channels, h, 5, padding=2),
            nn.GELU(),
            nn.Conv1d(h, h, 5, padding=2),
            nn.GELU(),
        )
        self.gru = nn.GRU(h, h, batch_first=True)
        self.mix = nn.Sequential(nn.LayerNorm(h), nn.Linear(h, 2 * h), nn.GELU(), nn.Dropout(0.1))
        self.out = nn.Linear(2 * h, cfg.horizon * targets)
        self.shape = (cfg.horizon, targets)

    def forward(self, x):
        z, last = self.gru(self.front(x.transpose(1, 2)).transpose(1, 2))
        return x[:, -1:, :2] + self.out(self.mix(last[-1] + z.mean(1))).view(-1, *self.shape)


class NanGuard:
    def __init__(self, tolerance):
        self.tolerance, self.skipped = tolerance, 0

    def accepts(self, norm):
        if math.isfinite(norm):
            return True
        self.skipped += 1
        if self.skipped > self.tolerance:
            raise FloatingPointError("too many skipped updates")
        return False


def evaluate(model, loader):
    model.eval()
    with torch.no_grad():
        errors = [(model(past) - future).abs().mean((1, 2)) for past, future in loader]
    model.train()
    return torch.cat(errors).mean().item()


def run(cfg):
    torch.manual_seed(cfg.seed)
    random.seed(cfg.seed)
    folder = Path(cfg.run_dir)
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(asdict(cfg), indent=1))
    train, held = build_loaders(cfg)
    model = VentForecaster(cfg)
    averaged = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(cfg.ema)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, cfg.epochs * len(train))
    parts = dict(model=model, averaged=averaged, optimizer=optimizer, schedule=schedule)
    first, best, stale, guard, seen = 0, float("inf"), 0, NanGuard(cfg.tolerance), 0
    if cfg.resume and (folder / "last.pt").exists():
        state = torch.load(folder / "last.pt")
        for name, part in parts.items():
            part.load_state_dict(state[name])
        first, best = state["epoch"] + 1, state["best"]
    began = time.perf_counter()
    for epoch in range(first, cfg.epochs):
        total = 0.0
        for past, future in train:
            loss = nn.functional.huber_loss(model(past), future)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            if guard.accepts(nn.utils.clip_grad_norm_(model.parameters(), cfg.clip).item()):
                optimizer.step()
                averaged.update_parameters(model)
            schedule.step()
            total += loss.item()
            seen += len(past)
        mae = evaluate(averaged, held)
        stale = 0 if mae < best else stale + 1
        best = min(best, mae)
        state = {name: part.state_dict() for name, part in parts.items()}
        torch.save({**state, "epoch": epoch, "best": best, "data": cfg.data_version}, folder / "last.pt")
        print(json.dumps({"epoch": epoch, "loss": round(total / len(train), 5), "mae": round(mae, 5)}))
        if stale >= cfg.patience:
            break
    rate = seen / (time.perf_counter() - began)
    print(f"{rate:.1f} windows/s")


if __name__ == "__main__":
    run(Config())
