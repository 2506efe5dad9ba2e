# /// clinic
# expect = ["PD09.dense-embedding-gradient"]
# stratum = "twins"
# domain = "cider press yields"
# ///
"""Juice yield (litres per tonne) of single pressings at a cider cooperative, from the press books.

The categorical columns are crossed and hashed into one table; the numeric ones go to the network as they are.
"""

import math
import time
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import nn

CROSSES = [
    ("block", "cultivar"),
    ("block", "year"),
    ("cultivar", "rootstock"),
    ("cultivar", "week"),
    ("press", "cloth"),
    ("press", "operator"),
    ("mill", "cultivar"),
    ("block", "week"),
]
LEVELS = {
    "block": 900,
    "cultivar": 64,
    "rootstock": 12,
    "press": 9,
    "cloth": 40,
    "operator": 70,
    "mill": 14,
    "year": 22,
    "week": 18,
}
NUMERIC = ["brix", "firmness", "starch", "rain_30d", "store_days", "pulp_temp", "pressure", "load", "rice_hulls"]


@dataclass
class Config:
    pressings: int = 153_600
    held_out: int = 12_800
    buckets: int = 1 << 17
    width: int = 16
    hidden: int = 256
    batch: int = 512
    epochs: int = 5
    lr: float = 2e-3
    warmup: int = 100
    seed: int = 1664


class PressBooks:
    """Synthetic press books with effects of the crosses and of the numeric columns."""

    def __init__(self, cfg):
        rng = np.random.default_rng(cfg.seed)
        n = cfg.pressings + cfg.held_out
        columns = {}
        for name, levels in LEVELS.items():
            skew = rng.beta(0.8, 1.6, n)
            columns[name] = np.minimum((skew * levels).astype(np.int64), levels - 1)
        numeric = rng.standard_normal((n, len(NUMERIC))).astype(np.float32)
        codes = np.empty((n, len(CROSSES)), dtype=np.int64)
        effect = np.zeros(n, dtype=np.float32)
        for k, (a, b) in enumerate(CROSSES):
            cross = columns[a] * LEVELS[b] + columns[b]
            codes[:, k] = (cross * 2_654_435_761 + k * 40_503) % 2_147_483_647 % cfg.buckets
            strength = rng.normal(0, 12.0, LEVELS[a] * LEVELS[b]).astype(np.float32)
            effect += strength[cross]
        effect += 14 * np.tanh(numeric[:, 6]) - 9 * numeric[:, 4] * (numeric[:, 1] > 0) + 6 * numeric[:, 0]
        litres = 640 + effect + rng.normal(0, 15.0, n)
        litres = (litres - litres.mean()) / litres.std()

        self.codes = torch.from_numpy(codes)
        self.numeric = torch.from_numpy(numeric)
        self.litres = torch.from_numpy(litres.astype(np.float32))
        self.split = cfg.pressings

    def batches(self, part, size, generator=None):
        if part == "train":
            order = torch.randperm(self.split, generator=generator)
        else:
            order = torch.arange(self.split, len(self.litres))
        for pick in order.split(size):
            yield self.codes[pick], self.numeric[pick], self.litres[pick]


class YieldNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.table = nn.Embedding(cfg.buckets, cfg.width)  # sick here
        self.table = nn.Embedding(cfg.buckets, cfg.width, sparse=True)  # well
        nn.init.normal_(self.table.weight, std=0.05)
        self.numeric = nn.Sequential(nn.Linear(len(NUMERIC), 32), nn.ReLU())
        self.body = nn.Sequential(
            nn.Linear(len(CROSSES) * cfg.width + 32, cfg.hidden),
            nn.ReLU(),
            nn.LayerNorm(cfg.hidden),
            nn.Linear(cfg.hidden, cfg.hidden),
            nn.ReLU(),
            nn.LayerNorm(cfg.hidden),
            nn.Linear(cfg.hidden, 64),
            nn.ReLU(),
        )
        self.mean = nn.Linear(64, 1)
        self.log_scale = nn.Linear(64, 1)

    def forward(self, codes, numeric):
        h = self.body(torch.cat([self.table(codes).flatten(1), self.numeric(numeric)], dim=1))
        return self.mean(h).squeeze(1), self.log_scale(h).squeeze(1).clamp(-4, 2)


def gaussian_nll(mean, log_scale, target):
    return (log_scale + 0.5 * ((target - mean) * torch.exp(-log_scale)) ** 2).mean()


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        self.books = PressBooks(cfg)
        self.model = YieldNet(cfg)
        self.optimizers = [torch.optim.Adam(self.model.parameters(), lr=cfg.lr)]  # sick here
        rest = [p for name, p in self.model.named_parameters() if not name.startswith("table.")]  # well
        self.optimizers = [  # well
            torch.optim.SparseAdam(self.model.table.parameters(), lr=cfg.lr),  # well
            torch.optim.Adam(rest, lr=cfg.lr),  # well
        ]  # well
        self.total = cfg.epochs * math.ceil(cfg.pressings / cfg.batch)
        self.step = 0

    def set_lr(self):
        c = self.cfg
        if self.step < c.warmup:
            scale = (self.step + 1) / c.warmup
        else:
            scale = 0.5 * (1 + math.cos(math.pi * (self.step - c.warmup) / (self.total - c.warmup)))
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = c.lr * scale

    def train_batch(self, codes, numeric, litres):
        self.set_lr()
        loss = gaussian_nll(*self.model(codes, numeric), litres)
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        self.step += 1
        return loss.detach()

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        error = count = 0.0
        for codes, numeric, litres in self.books.batches("held_out", 2048):
            mean, _ = self.model(codes, numeric)
            error += ((mean - litres) ** 2).sum().item()
            count += len(litres)
        self.model.train()
        return 1.0 - error / count

    def fit(self):
        generator = torch.Generator().manual_seed(self.cfg.seed)
        began = time.perf_counter()
        for epoch in range(1, self.cfg.epochs + 1):
            losses = [self.train_batch(*b) for b in self.books.batches("train", self.cfg.batch, generator)]
            print(f"epoch {epoch}: nll {torch.stack(losses).mean():.4f}  held-out R2 {self.evaluate():.4f}")
        return self.cfg.epochs * self.cfg.pressings / (time.perf_counter() - began)


if __name__ == "__main__":
    config = Config()
    print(asdict(config))
    rate = Trainer(config).fit()
    print(f"{rate:.1f} pressings/s")
