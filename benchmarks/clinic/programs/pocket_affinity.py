# /// clinic
# expect = ["PD05", "PD10"]
# stratum = "twins"
# domain = "graph regression on molecules (own Trainer class)"
# ///
"""Train a message-passing network that predicts binding affinity of molecules."""

import random
import time
from typing import NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F

POCKETS = 2000
FEATURES = 24
HIDDEN = 80
ROUNDS = 3
BATCH = 16
STEPS = 550
WARMUP = 20


class Pocket(NamedTuple):
    x: torch.Tensor
    src: torch.Tensor
    dst: torch.Tensor
    y: float


def make_pocket(rng, g):
    n = rng.randrange(25, 56)
    pos = torch.rand(n, 3, generator=g)
    near = torch.cdist(pos, pos).topk(5, largest=False).indices[:, 1:]
    src = near.reshape(-1)
    dst = torch.arange(n).repeat_interleave(4)
    x = torch.randn(n, FEATURES, generator=g)
    return Pocket(x, src, dst, float(x[:, 0].mean() + pos.std()))


def merge(pockets):
    offsets, total = [], 0
    for p in pockets:
        offsets.append(total)
        total += len(p.x)
    src = torch.cat([p.src + o for p, o in zip(pockets, offsets)])
    dst = torch.cat([p.dst + o for p, o in zip(pockets, offsets)])
    owner = torch.arange(len(pockets)).repeat_interleave(torch.tensor([len(p.x) for p in pockets]))
    return torch.cat([p.x for p in pockets]), src, dst, owner


class Round(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.message = nn.Linear(2 * dim, dim)
        self.update = nn.Linear(2 * dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, h, src, dst):
        m = F.silu(self.message(torch.cat([h[src], h[dst]], -1)))
        agg = torch.zeros_like(h).index_add(0, dst, m)
        return self.norm(h + F.silu(self.update(torch.cat([h, agg], -1))))


class PocketNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(FEATURES, HIDDEN)
        self.rounds = nn.ModuleList(Round(HIDDEN) for _ in range(ROUNDS))
        self.head = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, 1))

    def encode(self, x, src, dst):
        h = self.embed(x)
        for layer in self.rounds:
            h = layer(h, src, dst)
        return h

    def forward(self, pockets):
        pooled = torch.stack([self.encode(p.x, p.src, p.dst).mean(0) for p in pockets])  # sick here
        x, src, dst, owner = merge(pockets)  # well
        h = self.encode(x, src, dst)  # well
        count = torch.bincount(owner, minlength=len(pockets))[:, None]  # well
        pooled = h.new_zeros(len(pockets), HIDDEN).index_add(0, owner, h) / count  # well
        return self.head(pooled).squeeze(-1)


class Trainer:
    def __init__(self, model, data, lr=5e-4, seed=0):
        self.model, self.data = model, data
        self.opt = torch.optim.Adam(model.parameters(), lr=lr)
        self.rng = random.Random(seed)
        self.history = []

    def batches(self):
        while True:
            order = self.rng.sample(range(len(self.data)), len(self.data))
            for i in range(0, len(order) - BATCH + 1, BATCH):
                yield [self.data[j] for j in order[i : i + BATCH]]

    def training_step(self, pockets):
        target = torch.tensor([p.y for p in pockets])
        loss = F.smooth_l1_loss(self.model(pockets), target)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        return loss.item()

    def fit(self, steps):
        for step, pockets in zip(range(steps), self.batches()):
            if step == WARMUP:
                start = time.perf_counter()
            self.history.append(self.training_step(pockets))
        return (steps - WARMUP) * BATCH / (time.perf_counter() - start)


if __name__ == "__main__":
    torch.manual_seed(0)
    rng, g = random.Random(5), torch.Generator().manual_seed(5)
    data = [make_pocket(rng, g) for _ in range(POCKETS)]
    rate = Trainer(PocketNet(), data).fit(STEPS)
    print(f"{rate:.1f} samples/s")
