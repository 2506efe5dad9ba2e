# /// clinic
# expect = ["PD13.pinned-process"]
# stratum = "twins"
# domain = "kite line tension"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""Forecast of line tension for an airborne-wind kite.

Trained from the ground station's log (load cell, line angles, reel speed, anemometer): a causal dilated convolution
network sees the last five seconds and forecasts the tension of the next half second, so that the winch can pay out
before a gust loads the line.

    torchrun --nproc-per-node 2 train.py
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


@dataclass
class TrainConfig:
    window: int = 256
    horizon: int = 25
    stride: int = 44
    flights: int = 8
    samples: int = 20_000
    channels: int = 32
    blocks: int = 5
    batch: int = 16
    epochs: int = 2
    lr: float = 2e-3
    warmup: int = 30
    seed: int = 88
    folder: Path = Path("checkpoints")


def fly(rng: np.random.Generator, n: int, rate: float = 50.0) -> np.ndarray:
    """One flight in figures of eight: wind, elevation, azimuth, reel speed and the tension they produce."""
    t = np.arange(n) / rate
    noise = rng.standard_normal(n)
    gust = np.convolve(noise, np.exp(-np.arange(300) / 75.0), mode="full")[:n] * 0.22
    wind = rng.uniform(6, 12) + gust + 0.8 * np.sin(2 * np.pi * t / 47)
    period = rng.uniform(6.5, 9.5)
    azimuth = 0.55 * np.sin(2 * np.pi * t / period) + 0.02 * rng.standard_normal(n)
    elevation = 0.6 + 0.16 * np.sin(4 * np.pi * t / period + 0.4) + 0.02 * rng.standard_normal(n)
    reel = 1.2 * np.tanh(np.sin(2 * np.pi * t / 31) * 3) + 0.05 * rng.standard_normal(n)
    apparent = wind * np.cos(azimuth) * np.cos(elevation) - reel
    crosswind = 1 + 2.2 * np.abs(np.gradient(azimuth, t)) * np.cos(elevation)
    pull = 0.05 * np.clip(apparent, 0, None) ** 2 * crosswind
    tension = np.convolve(pull, np.exp(-np.arange(40) / 9.0) / 9.0, mode="full")[:n] + 0.05 * rng.standard_normal(n)
    log = np.stack([wind, elevation, azimuth, reel, tension]).astype(np.float32)
    return (log - log.mean(1, keepdims=True)) / log.std(1, keepdims=True)


class LineLog(Dataset):
    def __init__(self, cfg: TrainConfig, flights: int, seed: int):
        rng = np.random.default_rng(seed)
        self.logs = [torch.from_numpy(fly(rng, cfg.samples)) for _ in range(flights)]
        starts = range(0, cfg.samples - cfg.window - cfg.horizon, cfg.stride)
        self.index = [(f, s) for f in range(flights) for s in starts]
        self.cfg = cfg

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        flight, start = self.index[i]
        stop = start + self.cfg.window
        log = self.logs[flight]
        return log[:, start:stop], log[-1, stop : stop + self.cfg.horizon]


class CausalBlock(nn.Module):
    def __init__(self, channels: int, dilation: int, kernel: int = 5):
        super().__init__()
        self.pad = (kernel - 1) * dilation
        self.conv = nn.Conv1d(channels, 2 * channels, kernel, dilation=dilation)
        self.mix = nn.Conv1d(channels, channels, 1)
        self.norm = nn.GroupNorm(4, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        signal, gate = self.conv(F.pad(self.norm(x), (self.pad, 0))).chunk(2, dim=1)
        return x + self.mix(torch.tanh(signal) * torch.sigmoid(gate))


class TensionForecaster(nn.Module):
    def __init__(self, cfg: TrainConfig):
        super().__init__()
        self.enter = nn.Conv1d(5, cfg.channels, 1)
        self.blocks = nn.Sequential(*[CausalBlock(cfg.channels, 2**i) for i in range(cfg.blocks)])
        self.head = nn.Sequential(nn.Linear(2 * cfg.channels, 96), nn.GELU(), nn.Linear(96, cfg.horizon))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.blocks(self.enter(x))
        change = self.head(torch.cat([h[:, :, -1], h.mean(-1)], dim=1))
        return x[:, -1, -1:] + change


class Trainer:
    def __init__(self, cfg: TrainConfig):
        self.cfg = cfg
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(cfg.seed)
        train, held_out = LineLog(cfg, cfg.flights, cfg.seed), LineLog(cfg, 2, cfg.seed + 1)
        self.sampler = DistributedSampler(train, shuffle=True, seed=cfg.seed, drop_last=True)
        self.train_loader = DataLoader(train, cfg.batch, sampler=self.sampler, drop_last=True)
        self.held_out_loader = DataLoader(held_out, cfg.batch, sampler=DistributedSampler(held_out, shuffle=False))
        self.model = DistributedDataParallel(TensionForecaster(cfg))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr, weight_decay=1e-2)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda s: min(1.0, (s + 1) / cfg.warmup))

    def train_epoch(self, epoch: int) -> float:
        self.model.train()
        self.sampler.set_epoch(epoch)
        total = torch.zeros(())
        for x, y in self.train_loader:
            loss = F.huber_loss(self.model(x), y, delta=0.5)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            total += loss.detach()
        return float(total) / len(self.train_loader)

    @torch.no_grad()
    def evaluate(self) -> float:
        self.model.eval()
        sums = torch.zeros(2)
        for x, y in self.held_out_loader:
            sums += torch.tensor([(self.model.module(x) - y).square().sum().item(), y.numel()])
        dist.all_reduce(sums)
        return float((sums[0] / sums[1]).sqrt())

    def fit(self) -> float:
        dist.barrier()
        start = time.perf_counter()
        for epoch in range(self.cfg.epochs):
            loss = self.train_epoch(epoch)
            rmse = self.evaluate()
            if self.rank == 0:
                print(f"epoch {epoch}: loss {loss:.4f}, held-out rmse {rmse:.4f}", flush=True)
                self.cfg.folder.mkdir(exist_ok=True)
                torch.save(self.model.module.state_dict(), self.cfg.folder / f"tension_{epoch}.pt")
            dist.barrier()
        seconds = time.perf_counter() - start
        return self.cfg.epochs * len(self.train_loader) * self.cfg.batch * self.world / seconds


def bind_to_core() -> None:
    cores = sorted(os.sched_getaffinity(0))
    place = int(os.environ["GROUP_RANK"])  # sick here
    place = int(os.environ["LOCAL_RANK"])  # well
    os.sched_setaffinity(0, {cores[place % len(cores)]})  # here


def main() -> None:
    bind_to_core()
    dist.init_process_group("gloo")
    trainer = Trainer(TrainConfig())
    rate = trainer.fit()
    if trainer.rank == 0:
        print(f"{rate:.1f} windows/s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
