# /// clinic
# expect = ["PD02.attention-weights-returned"]
# stratum = "twins"
# domain = "avalanche beacon signals"
# ///
"""Count the buried transmitters in an avalanche transceiver recording and estimate the range of the nearest one.

A 457 kHz beacon sends short carrier bursts about once a second.  After down-mixing, a search receiver sees the sum of
the bursts of all buried beacons, each with its own period, duty cycle, frequency offset and field strength, in noise.
"""

import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Config:
    recordings: int = 1000
    samples: int = 7168
    rate_hz: float = 512.0
    patch: int = 8
    width: int = 64
    heads: int = 4
    depth: int = 2
    max_buried: int = 4
    batch: int = 2
    steps: int = 200
    eval_every: int = 100
    lr: float = 4e-4
    seed: int = 457


def simulate(cfg):
    rng = np.random.default_rng(cfg.seed)
    t = np.arange(cfg.samples, dtype=np.float32) / cfg.rate_hz
    x = rng.normal(0, 0.25, (cfg.recordings, 2, cfg.samples)).astype(np.float32)
    count = rng.integers(1, cfg.max_buried + 1, cfg.recordings)
    nearest = np.zeros(cfg.recordings, dtype=np.float32)
    for i, k in enumerate(count):
        distance = rng.uniform(2.0, 40.0, k).astype(np.float32)
        nearest[i] = distance.min()
        for d in distance:
            period = rng.uniform(0.7, 1.3)
            burst = rng.uniform(0.07, 0.25)
            on = ((t + rng.uniform(0, period)) % period) < burst
            phase = 2 * np.pi * (rng.uniform(-80, 80) * t + rng.uniform())
            level = 30.0 / (d + 4.0) ** 1.5
            x[i, 0] += level * on * np.cos(phase)
            x[i, 1] += level * on * np.sin(phase)
    x /= np.abs(x).max(axis=(1, 2), keepdims=True) + 1e-6
    return torch.from_numpy(x), torch.from_numpy(count - 1), torch.from_numpy(np.log(nearest))


class Block(nn.Module):
    def __init__(self, width, heads, dropout=0.1):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        h = self.norm1(x)
        h, _ = self.attn(h, h, h)  # sick here
        h, _ = self.attn(h, h, h, need_weights=False)  # well
        x = x + self.drop(h)
        return x + self.drop(self.mlp(self.norm2(x)))


class BeaconNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        tokens = cfg.samples // cfg.patch
        self.stem = nn.Conv1d(2, cfg.width, cfg.patch, stride=cfg.patch)
        self.place = nn.Parameter(0.02 * torch.randn(1, tokens, cfg.width))
        self.blocks = nn.ModuleList(Block(cfg.width, cfg.heads) for _ in range(cfg.depth))
        self.norm = nn.LayerNorm(cfg.width)
        self.count = nn.Linear(cfg.width, cfg.max_buried)
        self.range = nn.Linear(cfg.width, 1)

    def forward(self, x):
        h = self.stem(x).transpose(1, 2) + self.place
        for block in self.blocks:
            h = block(h)
        h = self.norm(h).mean(1)
        return self.count(h), self.range(h).squeeze(-1)


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        x, count, log_range = simulate(cfg)
        held = 48
        self.train = (x[held:], count[held:], log_range[held:])
        self.held = (x[:held], count[:held], log_range[:held])
        self.model = BeaconNet(cfg)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr, weight_decay=0.02)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.opt, cfg.lr, total_steps=cfg.steps, pct_start=0.1)

    def batches(self):
        n = len(self.train[0])
        while True:
            order = torch.randperm(n)
            for i in range(0, n - self.cfg.batch + 1, self.cfg.batch):
                pick = order[i : i + self.cfg.batch]
                yield tuple(part[pick] for part in self.train)

    def loss(self, x, count, log_range):
        logits, guess = self.model(x)
        return F.cross_entropy(logits, count, label_smoothing=0.05) + 0.5 * F.smooth_l1_loss(guess, log_range)

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        right, error, n = 0, 0.0, len(self.held[0])
        for i in range(0, n, 4):
            x, count, log_range = (part[i : i + 4] for part in self.held)
            logits, guess = self.model(x)
            right += int((logits.argmax(1) == count).sum())
            error += float((guess.exp() - log_range.exp()).abs().sum())
        self.model.train()
        return right / n, error / n

    def fit(self):
        self.model.train()
        source, total, began = self.batches(), 0.0, time.perf_counter()
        for step in range(1, self.cfg.steps + 1):
            loss = self.loss(*next(source))
            self.opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.opt.step()
            self.schedule.step()
            total += loss.detach()
            if step % self.cfg.eval_every == 0:
                accuracy, metres = self.evaluate()
                mean = float(total) / self.cfg.eval_every
                total = 0.0
                print(f"step {step}: loss {mean:.3f}, count right {accuracy:.2f}, range off by {metres:.1f} m")
        return self.cfg.steps * self.cfg.batch / (time.perf_counter() - began)


if __name__ == "__main__":
    trainer = Trainer(Config())
    print(f"{sum(p.numel() for p in trainer.model.parameters())} parameters, {len(trainer.train[0])} recordings")
    rate = trainer.fit()
    print(f"{rate:.1f} samples/s")
