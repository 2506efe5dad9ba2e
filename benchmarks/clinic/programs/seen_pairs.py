# /// clinic
# expect = ["PD15"]
# stratum = "twins"
# domain = "recommender"
# ///
"""Trains a two-tower retrieval model on synthetic clicks."""

import time

import torch
import torch.nn.functional as F
from torch import nn

USERS = 1000
ITEMS = 1000
DIM = 64
BATCH = 1024
STEPS = 800
WARMUP = 20
LOG_EVERY = 100


class Tower(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.table = nn.Embedding(count, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 512), nn.ReLU(), nn.Linear(512, DIM))

    def forward(self, ids):
        return F.normalize(self.mlp(self.table(ids)), dim=-1)


class Coverage:
    """How much of the catalogue the stream of clicks has touched."""

    def __init__(self):
        self.pairs = torch.empty(0, dtype=torch.long)  # sick
        self.touched = torch.zeros(USERS * ITEMS, dtype=torch.bool)  # well

    def update(self, users, items):
        keys = users * ITEMS + items
        self.pairs = torch.unique(torch.cat([self.pairs, keys]))  # sick here
        self.touched[keys] = True  # well

    def value(self):
        return len(self.pairs) / (USERS * ITEMS)  # sick
        return int(self.touched.sum()) / (USERS * ITEMS)  # well


class ClickStream:
    def __init__(self, seed):
        self.rng = torch.Generator().manual_seed(seed)
        self.popularity = 1.0 / torch.arange(1, ITEMS + 1).float() ** 0.3

    def batch(self):
        users = torch.randint(0, USERS, (BATCH,), generator=self.rng)
        items = torch.multinomial(self.popularity, BATCH, replacement=True, generator=self.rng)
        return users, items


def main():
    torch.manual_seed(0)
    user_tower, item_tower = Tower(USERS), Tower(ITEMS)
    params = list(user_tower.parameters()) + list(item_tower.parameters())
    optimizer = torch.optim.Adagrad(params, lr=0.05)
    stream, coverage = ClickStream(1), Coverage()
    history = []
    targets = torch.arange(BATCH)
    for step in range(STEPS):
        if step == WARMUP:
            start = time.perf_counter()
        users, items = stream.batch()
        logits = user_tower(users) @ item_tower(items).T / 0.07
        loss = F.cross_entropy(logits, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        coverage.update(users, items)
        if step % LOG_EVERY == 0:
            history.append((step, loss.item(), coverage.value()))
    rate = (STEPS - WARMUP) / (time.perf_counter() - start)
    print(f"{rate:.1f} steps/s")


if __name__ == "__main__":
    main()
