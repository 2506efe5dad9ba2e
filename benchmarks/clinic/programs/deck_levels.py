# /// clinic
# expect = ["PD19.accumulation-without-no-sync"]
# stratum = "twins"
# domain = "parking decks"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""Occupancy forecast for parking decks: every level is a node, ramps are edges; two data-parallel ranks.

torchrun --nproc-per-node 2 train.py
"""

import json
import math
import os
import random
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


@dataclass
class Config:
    data_version: str = "decks/2026-11-14"
    seed: int = 4411
    levels: int = 10
    history: int = 96
    horizon: int = 12
    hidden: int = 1024
    layers: int = 4
    windows: int = 672
    held_out: int = 120
    micro_batch: int = 2
    accumulate: int = 4
    epochs: int = 2
    lr: float = 3e-4
    weight_decay: float = 1e-4
    warmup: int = 10
    clip: float = 5.0
    bf16: bool = False
    log_every: int = 20
    patience: int = 3
    run_dir: str = "deck_run"


class JsonLog:
    def __init__(self, path, active):
        self.handle = open(path, "a") if active else None

    def write(self, event, **fields):
        if self.handle:
            self.handle.write(json.dumps({"t": round(time.time(), 3), "event": event, **fields}) + "\n")
            self.handle.flush()


class DeckWindows(Dataset):
    """Counts in and out at the barriers and on the ramps between levels, scaled by the level's capacity."""

    def __init__(self, cfg, count, seed):
        rng = np.random.default_rng(seed)
        span = cfg.history + cfg.horizon
        t = np.arange(count * 4 + span, dtype=np.float32)[:, None]
        shift = rng.uniform(0, 6, (1, cfg.levels))
        day = 0.5 - 0.45 * np.cos(2 * np.pi * (t - 12 * shift) / 288)
        week = 1.0 - 0.4 * (((t // 288) % 7) >= 5)
        order = np.linspace(0.6, 1.4, cfg.levels)[None]
        load = np.clip(day * week * order + 0.04 * rng.normal(size=(len(t), cfg.levels)), 0, 1)
        self.series = torch.from_numpy(load.astype(np.float32))
        self.cfg, self.count = cfg, count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        w = self.series[i * 4 : i * 4 + self.cfg.history + self.cfg.horizon].t()
        return w[:, : self.cfg.history], w[:, self.cfg.history :]


def ramp_graph(levels):
    a = torch.eye(levels)
    for i in range(levels - 1):
        a[i, i + 1] = a[i + 1, i] = 1.0
    for i in range(0, levels - 3, 3):  # express helix
        a[i, i + 3] = a[i + 3, i] = 0.5
    return a / a.sum(1, keepdim=True)


class RampNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.register_buffer("graph", ramp_graph(cfg.levels))
        self.enter = nn.Linear(cfg.history, cfg.hidden)
        self.level = nn.Parameter(torch.randn(cfg.levels, cfg.hidden) * 0.02)
        self.own = nn.ModuleList(nn.Linear(cfg.hidden, cfg.hidden) for _ in range(cfg.layers))
        self.ramp = nn.ModuleList(nn.Linear(cfg.hidden, cfg.hidden, bias=False) for _ in range(cfg.layers))
        self.norms = nn.ModuleList(nn.LayerNorm(cfg.hidden) for _ in range(cfg.layers))
        self.leave = nn.Linear(cfg.hidden, cfg.horizon)

    def forward(self, x):
        h = self.enter(x) + self.level
        for own, ramp, norm in zip(self.own, self.ramp, self.norms):
            z = norm(h)
            h = h + F.gelu(own(z) + ramp(self.graph @ z))
        return x[..., -1:] + self.leave(h)


class Forecaster:
    def __init__(self, cfg, rank, world):
        self.cfg, self.rank = cfg, rank
        random.seed(cfg.seed + rank)
        torch.manual_seed(cfg.seed)
        train, held = DeckWindows(cfg, cfg.windows, cfg.seed), DeckWindows(cfg, cfg.held_out, cfg.seed + 1)
        self.sampler = DistributedSampler(train, world, rank, shuffle=True, seed=cfg.seed, drop_last=True)
        self.train = DataLoader(train, cfg.micro_batch, sampler=self.sampler, drop_last=True)
        self.held = DataLoader(held, 20, sampler=DistributedSampler(held, world, rank, shuffle=False))
        self.model = DDP(RampNet(cfg), gradient_as_bucket_view=True, broadcast_buffers=False)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay, fused=True
        )
        total = cfg.epochs * len(self.train) // cfg.accumulate
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer,
            lambda s: min(1.0, (s + 1) / cfg.warmup) * (0.55 + 0.45 * math.cos(math.pi * min(1.0, s / total))),
        )
        self.log = JsonLog(Path(cfg.run_dir) / "log.jsonl", rank == 0)
        self.log.write("config", **asdict(cfg))
        self.step, self.best, self.stale, self.samples = 0, float("inf"), 0, 0

    def update(self):
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg.clip)
        if torch.isfinite(norm):
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.schedule.step()
        self.step += 1
        if self.step % self.cfg.log_every == 0:
            self.log.write("step", step=self.step, norm=round(norm.item(), 4), lr=self.schedule.get_last_lr()[0])

    def epoch(self, number):
        self.sampler.set_epoch(number)
        self.model.train()
        for i, (past, future) in enumerate(self.train):
            boundary = (i + 1) % self.cfg.accumulate == 0
            with ExitStack() as stack:
                stack.enter_context(torch.autocast("cpu", torch.bfloat16, enabled=self.cfg.bf16))
                if not boundary:  # well
                    stack.enter_context(self.model.no_sync())  # well
                loss = F.smooth_l1_loss(self.model(past), future, beta=0.05)
                (loss / self.cfg.accumulate).backward()  # here
            self.samples += len(past)
            if boundary:
                self.update()

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        sums = torch.zeros(2)
        for past, future in self.held:
            error = (self.model.module(past) - future).abs()
            sums += torch.tensor([error.sum(), error.numel()])
        dist.all_reduce(sums)
        return (sums[0] / sums[1]).item()

    def fit(self):
        for number in range(self.cfg.epochs):
            self.epoch(number)
            mae = self.evaluate()
            self.log.write("epoch", epoch=number, mae=round(mae, 5), step=self.step)
            self.stale = 0 if mae < self.best else self.stale + 1
            if mae < self.best and self.rank == 0:
                state = {"model": self.model.module.state_dict(), "step": self.step, "data": self.cfg.data_version}
                torch.save(state, Path(self.cfg.run_dir) / "best.pt")
            self.best = min(self.best, mae)
            if self.stale >= self.cfg.patience:
                break


def main():
    cfg = Config()
    dist.init_process_group("gloo")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    Path(cfg.run_dir).mkdir(exist_ok=True)
    job = Forecaster(cfg, rank, world)
    dist.barrier()
    began = time.perf_counter()
    job.fit()
    dist.barrier()
    rate = job.samples * world / (time.perf_counter() - began)
    dist.destroy_process_group()
    if rank == 0:
        print(f"best mae {job.best:.4f} after {job.step} steps")
        print(f"{rate:.1f} windows/s")


if __name__ == "__main__":
    main()
