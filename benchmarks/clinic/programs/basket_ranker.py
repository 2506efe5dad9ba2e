# /// clinic
# expect = ["PD03.workers-restarted"]
# allow = ["PD03.collate", "PD03.transform", "PD03.needless-workers"]
# stratum = "twins"
# domain = "recommender"
# ///
"""Next-item ranking from shopping baskets; the day's log is short, so there are many short epochs."""

import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    items: int = 4000
    baskets: int = 768
    basket_len: int = 30
    batch: int = 64
    dim: int = 96
    epochs: int = 34
    workers: int = 2
    lr: float = 2e-3


class Baskets(Dataset):
    """A basket becomes a window of items, a time-decayed profile and the next item."""

    def __init__(self, cfg):
        rng = np.random.default_rng(3)
        self.cfg = cfg
        self.log = rng.integers(1, cfg.items, size=(cfg.baskets, cfg.basket_len + 1))
        self.age = np.sort(rng.exponential(5.0, size=(cfg.baskets, cfg.basket_len)), axis=1)[:, ::-1].copy()

    def __len__(self):
        return self.cfg.baskets

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        items = self.log[i, :-1].copy()
        items[rng.random(len(items)) < 0.1] = 0
        weight = np.exp(-self.age[i] / 5.0)
        profile = np.zeros(256, dtype=np.float32)
        np.add.at(profile, items % 256, weight)
        profile = np.log1p(profile)
        profile /= np.linalg.norm(profile) + 1e-6
        return items, profile, self.log[i, -1]


class Ranker(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.emb = nn.Embedding(cfg.items, cfg.dim, padding_idx=0)
        self.side = nn.Linear(256, cfg.dim)
        self.gru = nn.Sequential(nn.Linear(cfg.dim, cfg.dim * 2), nn.GELU(), nn.Linear(cfg.dim * 2, cfg.dim))
        self.norm = nn.LayerNorm(cfg.dim)

    def forward(self, items, profile):
        h = self.gru(self.emb(items)).mean(1) + self.side(profile)
        return self.norm(h) @ self.emb.weight.T


def make_loader(cfg):
    options = dict(batch_size=cfg.batch, shuffle=True, drop_last=True, num_workers=cfg.workers)
    return DataLoader(  # here
        Baskets(cfg),
        persistent_workers=True,  # well
        **options,
    )


def train(cfg):
    torch.manual_seed(1)
    loader = make_loader(cfg)  # here
    net = Ranker(cfg)
    opt = torch.optim.Adam(net.parameters(), lr=cfg.lr)
    seen, begin = 0, None
    for epoch in range(cfg.epochs):
        if epoch == 2:
            seen, begin = 0, time.perf_counter()
        total = torch.zeros(())
        for items, profile, target in loader:
            loss = F.cross_entropy(net(items, profile), target)
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen += len(target)
            total += loss.detach()
        if epoch % 10 == 0:
            print(f"epoch {epoch:3d} loss {total.item() / len(loader):.4f}")
    return seen / (time.perf_counter() - begin)


if __name__ == "__main__":
    rate = train(Config())
    print(f"{rate:.1f} baskets/s")
