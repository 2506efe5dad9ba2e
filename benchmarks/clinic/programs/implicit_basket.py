# /// clinic
# expect = ["PD09.dense-embedding-gradient", "PD10.element-loop"]
# allow = ["PD10.scalar-reads", "PD09.oversized-layer"]
# stratum = "comorbid"
# domain = "recommender"
# ///
"""Implicit-feedback matrix factorisation with popularity-weighted negatives."""

import time

import torch
import torch.nn.functional as F
from torch import nn


class Catalogue:
    def __init__(self, users, items, seed=0):
        gen = torch.Generator().manual_seed(seed)
        self.users, self.items = users, items
        self.popularity = (torch.rand(items, generator=gen) + 0.01).pow(3)
        self.edges = (self.popularity / self.popularity.sum()).cumsum(0)
        self.gen = gen

    def positives(self, n):
        u = torch.randint(self.users, (n,), generator=self.gen)
        i = torch.searchsorted(self.edges, torch.rand(n, generator=self.gen)).clamp(max=self.items - 1)
        return u, i

    def negatives(self, like):
        draw = torch.randint(self.items, like.shape, generator=self.gen)
        for k in range(len(draw)):  # sick:b here
            if draw[k] == like[k]:  # sick:b here
                draw[k] = (draw[k] + 1) % self.items  # sick:b here
        draw = torch.where(draw == like, (draw + 1) % self.items, draw)  # well:b
        return draw


class Factors(nn.Module):
    def __init__(self, users, items, dim):
        super().__init__()
        sparse = False  # sick:a here
        sparse = True  # well:a
        self.user = nn.Embedding(users, dim, sparse=sparse)  # here
        self.item = nn.Embedding(items, dim, sparse=sparse)  # here
        self.mix = nn.Sequential(nn.Linear(dim, dim * 4), nn.ReLU(), nn.Linear(dim * 4, dim))
        nn.init.normal_(self.user.weight, std=0.05)
        nn.init.normal_(self.item.weight, std=0.05)

    def forward(self, u, pos, neg):
        p = self.mix(self.user(u))
        return (p * self.item(pos)).sum(-1), (p * self.item(neg)).sum(-1)


class Fit:
    def __init__(self, users=60_000, items=60_000, dim=48, batch=2048):
        torch.manual_seed(0)
        self.catalogue = Catalogue(users, items)
        self.model = Factors(users, items, dim)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.5)
        self.batch = batch

    def step(self):
        u, pos = self.catalogue.positives(self.batch)
        neg = self.catalogue.negatives(pos)
        good, bad = self.model(u, pos, neg)
        loss = -F.logsigmoid(good - bad).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.detach()

    @torch.no_grad()
    def auc(self):
        u, pos = self.catalogue.positives(512)
        good, bad = self.model(u, pos, torch.randint(self.catalogue.items, pos.shape))
        return (good > bad).float().mean()

    def run(self, steps=600, warm=10):
        for k in range(steps):
            if k == warm:
                start = time.perf_counter()
            loss = self.step()
            if (k + 1) % 100 == 0:
                print(f"{k + 1:5d} loss {loss:.4f} auc {self.auc():.3f}")
        return (steps - warm) * self.batch / (time.perf_counter() - start)


print(f"{Fit().run():.1f} pairs/s")
