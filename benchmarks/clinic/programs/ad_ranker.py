# /// clinic
# expect = ["PD09.dense-embedding-gradient"]
# stratum = "twins"
# domain = "click-through"
# ///
"""Click-through ranking: hashed categorical fields, a few numeric ones, an MLP on top (Accelerate)."""

import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn

FIELDS = 10
BUCKETS = 160_000
WIDTH = 16
NUMERIC = 13


def impressions(count, seed=1):
    gen = torch.Generator().manual_seed(seed)
    skew = torch.rand(count, FIELDS, generator=gen) ** 2
    fields = (skew * BUCKETS).long().clamp_(max=BUCKETS - 1)
    numeric = torch.randn(count, NUMERIC, generator=gen)
    logit = (fields % 7).float().mean(1) - 3 + numeric[:, 0] * numeric[:, 1]
    clicks = torch.bernoulli(torch.sigmoid(logit), generator=gen)
    return fields, numeric, clicks


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(BUCKETS, WIDTH)  # sick here
        self.table = nn.Embedding(BUCKETS, WIDTH, sparse=True)  # well
        nn.init.normal_(self.table.weight, std=0.01)
        self.deep = nn.Sequential(
            nn.Linear(FIELDS * WIDTH + NUMERIC, 256),
            nn.ReLU(),
            nn.Linear(256, 128),
            nn.ReLU(),
            nn.Linear(128, 1),
        )

    def forward(self, fields, numeric):
        rows = self.table(fields)
        return self.deep(torch.cat([rows.flatten(1), numeric], dim=1)).squeeze(1)


def train(steps=500, batch_size=1024, warm=10):
    set_seed(5)
    accelerator = Accelerator(cpu=True)
    fields, numeric, clicks = impressions(batch_size * 64)
    model = Ranker()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02)
    model, optimizer = accelerator.prepare(model, optimizer)
    criterion = nn.BCEWithLogitsLoss()

    order, cursor = torch.randperm(len(clicks)), 0
    begun = running = 0.0
    for step in range(steps):
        if step == warm:
            begun = time.perf_counter()
        if cursor + batch_size > len(order):
            order, cursor = torch.randperm(len(clicks)), 0
        pick = order[cursor : cursor + batch_size]
        cursor += batch_size
        loss = criterion(model(fields[pick], numeric[pick]), clicks[pick])
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        running += loss.detach()
        if (step + 1) % 80 == 0:
            accelerator.print(f"{step + 1:4d}  log loss {float(running) / 80:.4f}")
            running = 0.0
    return (steps - warm) * batch_size / (time.perf_counter() - begun)


if __name__ == "__main__":
    print(f"{train():.1f} impressions/s")
