# /// clinic
# expect = ["PD09.dense-embedding-gradient"]
# stratum = "twins"
# domain = "hop garden yields"
# ///
"""Dry hop yield of single hills (plants) from the pickers' books: entity embeddings and a residual MLP."""

import math
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    hills: int = 45_000
    gardens: int = 180
    varieties: int = 14
    years: int = 22
    records: int = 110_000
    held_out: int = 7_600
    hill_dim: int = 32
    side_dim: int = 12
    width: int = 224
    blocks: int = 2
    batch: int = 512
    epochs: int = 6
    lr: float = 1.5e-3
    seed: int = 1771


def pickers_books(cfg):
    """Synthetic books: each record is a hill in a year, with weather and husbandry, and the bushels picked from it."""
    rng = np.random.default_rng(cfg.seed)
    garden_of = rng.integers(0, cfg.gardens, cfg.hills)
    variety_of = rng.integers(0, cfg.varieties, cfg.gardens)
    vigour = rng.normal(0, 0.25, cfg.hills).astype(np.float32)
    soil = rng.normal(0, 0.2, cfg.gardens).astype(np.float32)
    season = rng.normal(0, 0.3, cfg.years).astype(np.float32)
    rain_need = rng.normal(0.2, 0.15, cfg.varieties).astype(np.float32)

    hill = rng.integers(0, cfg.hills, cfg.records)
    year = rng.integers(0, cfg.years, cfg.records)
    garden = garden_of[hill]
    variety = variety_of[garden]
    weather = rng.normal(0, 1, (cfg.years, 4)).astype(np.float32)[year]
    weather += 0.2 * rng.normal(0, 1, weather.shape).astype(np.float32)
    care = rng.random((cfg.records, 4), dtype=np.float32)
    mould = (rng.random(cfg.records) < 0.08).astype(np.float32)
    bushels = 2.2 + vigour[hill] + soil[garden] + season[year] + rain_need[variety] * weather[:, 0]
    bushels += 0.3 * np.sqrt(care[:, 0]) - 0.1 * (weather[:, 1] - care[:, 1]) ** 2 - 0.8 * mould * (1 - care[:, 2])
    bushels += rng.normal(0, 0.1, cfg.records).astype(np.float32)
    places = torch.from_numpy(np.stack([hill, garden, variety, year], axis=1))
    numbers = torch.from_numpy(np.concatenate([weather, care, mould[:, None]], axis=1).astype(np.float32))
    return places, numbers, torch.from_numpy(bushels.astype(np.float32))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, width)
        self.down = nn.Linear(width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class YieldModel(nn.Module):
    def __init__(self, cfg, numbers):
        super().__init__()
        self.hill = nn.Embedding(cfg.hills, cfg.hill_dim)  # sick here
        self.hill = nn.Embedding(cfg.hills, cfg.hill_dim, sparse=True)  # well
        nn.init.normal_(self.hill.weight, std=0.05)
        self.side = nn.ModuleList(nn.Embedding(n, cfg.side_dim) for n in (cfg.gardens, cfg.varieties, cfg.years))
        self.enter = nn.Linear(cfg.hill_dim + 3 * cfg.side_dim + numbers, cfg.width)
        self.body = nn.Sequential(*[Block(cfg.width) for _ in range(cfg.blocks)])
        self.leave = nn.Sequential(nn.LayerNorm(cfg.width), nn.Linear(cfg.width, 2))

    def forward(self, places, numbers):
        parts = [self.hill(places[:, 0])] + [table(places[:, i + 1]) for i, table in enumerate(self.side)]
        x = self.enter(torch.cat(parts + [numbers], dim=-1))
        mean, spread = self.leave(self.body(x)).unbind(dim=-1)
        return mean + 2.2, F.softplus(spread) + 0.02

    def network(self):
        return [p for name, p in self.named_parameters() if not name.startswith("hill.")]


def make_optimizers(model, cfg):
    optimizers = [torch.optim.Adam(model.parameters(), lr=cfg.lr)]  # sick here
    tables = torch.optim.SparseAdam(model.hill.parameters(), lr=cfg.lr)  # well
    optimizers = [torch.optim.Adam(model.network(), lr=cfg.lr), tables]  # well
    return optimizers


def learning_rate(step, total, cfg, warmup=60):
    if step < warmup:
        return cfg.lr * (step + 1) / warmup
    return cfg.lr * (0.02 + 0.49 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup))))


@torch.no_grad()
def appraise(model, places, numbers, bushels):
    model.eval()
    errors, inside = [], []
    for at in range(0, len(bushels), 2048):
        mean, spread = model(places[at : at + 2048], numbers[at : at + 2048])
        gap = (mean - bushels[at : at + 2048]).abs()
        errors.append(gap)
        inside.append(gap < 1.645 * spread)
    model.train()
    return torch.cat(errors).mean().item(), torch.cat(inside).float().mean().item()


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    places, numbers, bushels = pickers_books(cfg)
    train = [part[cfg.held_out :] for part in (places, numbers, bushels)]
    held = [part[: cfg.held_out] for part in (places, numbers, bushels)]
    model = YieldModel(cfg, numbers.shape[1])
    optimizers = make_optimizers(model, cfg)
    steps = len(train[2]) // cfg.batch
    total = steps * cfg.epochs
    done = 0
    began = time.perf_counter()
    for epoch in range(cfg.epochs):
        order = torch.randperm(len(train[2]))
        losses = []
        for step in range(steps):
            rows = order[step * cfg.batch : (step + 1) * cfg.batch]
            for optimizer in optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = learning_rate(done, total, cfg)
                optimizer.zero_grad()
            mean, spread = model(train[0][rows], train[1][rows])
            loss = F.gaussian_nll_loss(mean, train[2][rows], spread**2)
            loss.backward()
            nn.utils.clip_grad_norm_(model.network(), 2.0)
            for optimizer in optimizers:
                optimizer.step()
            losses.append(loss.detach())
            done += 1
        error, inside = appraise(model, *held)
        nll = torch.stack(losses).mean().item()
        print(f"epoch {epoch}: nll {nll:.3f}, held-out error {error:.3f} bushels, 90% band holds {inside:.1%}")
        torch.save(model.state_dict(), "hops.pt")
    rate = done * cfg.batch / (time.perf_counter() - began)
    print(f"{rate:.1f} records/s")


if __name__ == "__main__":
    main()
