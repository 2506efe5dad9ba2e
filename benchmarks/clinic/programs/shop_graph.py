# /// clinic
# expect = ["PD17", "PD08", "PD09", "PD10"]
# stratum = "twins"
# domain = "graph recommender"
# ///
"""Trains graph-smoothed user and item vectors on synthetic purchases with a pairwise loss."""

import time

import torch
import torch.nn.functional as F
from torch import nn

USERS = 4000
ITEMS = 2500
PURCHASES = 60_000
DIM = 48
HOPS = 3
BATCH = 2048
STEPS = 340
WARMUP = 20
DECAY = 1e-4


def purchases(generator):
    taste = torch.randint(20, (USERS,), generator=generator)
    user = torch.randint(USERS, (PURCHASES,), generator=generator)
    drawn = torch.randint(ITEMS // 20, (PURCHASES,), generator=generator)
    stray = torch.randint(ITEMS, (PURCHASES,), generator=generator)
    item = torch.where(torch.rand(PURCHASES, generator=generator) < 0.7, taste[user] * (ITEMS // 20) + drawn, stray)
    return torch.unique(torch.stack([user, item]), dim=1)


def normalised(edges):
    """Symmetric degree-normalised adjacency of the bipartite graph."""
    row = torch.cat([edges[0], edges[1] + USERS])
    col = torch.cat([edges[1] + USERS, edges[0]])
    degree = torch.bincount(row, minlength=USERS + ITEMS).clamp_min(1).float().rsqrt()
    shape = (USERS + ITEMS, USERS + ITEMS)
    return torch.sparse_coo_tensor(torch.stack([row, col]), degree[row] * degree[col], shape).coalesce()


class GraphTable(nn.Module):
    def __init__(self, edges):
        super().__init__()
        self.base = nn.Parameter(torch.randn(USERS + ITEMS, DIM) * 0.1)
        self.register_buffer("graph", normalised(edges), persistent=False)

    def propagate(self):
        hop, total = self.base, self.base
        for _ in range(HOPS):
            hop = torch.sparse.mm(self.graph, hop)
            total = total + hop
        return total / (HOPS + 1)

    @property
    def users(self):
        return self.propagate()[:USERS]

    @property
    def items(self):
        return self.propagate()[USERS:]

    def both(self):
        return self.propagate().split([USERS, ITEMS])


class Pairwise:
    def __init__(self, model):
        self.model = model

    def __call__(self, user, bought, other):
        people, goods = self.model.both()  # well
        people = self.model.users  # sick
        goods = self.model.items  # sick here
        gap = (people[user] * (goods[bought] - goods[other])).sum(-1)
        raw = self.model.base
        size = raw[user].pow(2).sum() + raw[bought + USERS].pow(2).sum() + raw[other + USERS].pow(2).sum()
        return F.softplus(-gap).mean() + DECAY * size / user.numel()


def triples(edges, generator):
    while True:
        order = torch.randperm(edges.size(1), generator=generator)
        for part in order.split(BATCH):
            if part.numel() == BATCH:
                other = torch.randint(ITEMS, (BATCH,), generator=generator)
                yield edges[0, part], edges[1, part], other


def train():
    torch.manual_seed(4)
    g = torch.Generator().manual_seed(4)
    edges = purchases(g)
    model = GraphTable(edges)
    loss_of = Pairwise(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
    stamps = []
    for step, batch in zip(range(STEPS + WARMUP), triples(edges, g)):
        if step == WARMUP:
            stamps.append(time.perf_counter())
        loss = loss_of(*batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    stamps.append(time.perf_counter())
    return STEPS / (stamps[1] - stamps[0])


if __name__ == "__main__":
    print(f"{train():.1f} steps/s")
