# /// clinic
# expect = ["PD09"]
# stratum = "twins"
# domain = "recommender of next items in sessions (config dataclass)"
# ///
"""Train a GRU session recommender with sampled softmax."""

import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    items: int = 50_000
    sessions: int = 20_000
    length: int = 12
    dim: int = 48
    hidden: int = 128
    batch: int = 96
    sampled: int = 256
    lr: float = 2e-3


STEPS = 500
WARMUP = 20


def make_sessions(cfg):
    start = torch.randint(cfg.items, (cfg.sessions, 1))
    hops = torch.randint(-40, 41, (cfg.sessions, cfg.length))
    return (start + hops.cumsum(1)) % cfg.items


class ItemTable(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.vectors = nn.Embedding(cfg.items, cfg.dim)  # sick here
        self.vectors = nn.Embedding(cfg.items, cfg.dim, sparse=True)  # well
        nn.init.normal_(self.vectors.weight, std=0.05)

    def forward(self, ids):
        return self.vectors(ids)


class SessionModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.table = ItemTable(cfg)
        self.gru = nn.GRU(cfg.dim, cfg.hidden, num_layers=2, batch_first=True, dropout=0.1)
        self.out = nn.Linear(cfg.hidden, cfg.dim)

    def forward(self, history):
        states, _ = self.gru(self.table(history))
        return self.out(states)

    def loss(self, sessions, noise):
        query = self(sessions[:, :-1])
        target = self.table(sessions[:, 1:])
        positive = (query * target).sum(-1, keepdim=True)
        negative = query @ self.table(noise).T
        logits = torch.cat([positive, negative], -1).flatten(0, 1)
        return F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long))


def make_optimizers(model, cfg):
    rest = [p for n, p in model.named_parameters() if not n.startswith("table.")]
    return [
        torch.optim.Adam(rest, lr=cfg.lr),
        torch.optim.Adam(model.table.parameters(), lr=cfg.lr),  # sick
        torch.optim.SparseAdam(list(model.table.parameters()), lr=cfg.lr),  # well
    ]


def batches(sessions, cfg):
    while True:
        for idx in torch.randperm(len(sessions)).split(cfg.batch):
            if len(idx) == cfg.batch:
                yield sessions[idx], torch.randint(cfg.items, (cfg.sampled,))


def train(cfg, steps):
    model = SessionModel(cfg)
    optimizers = make_optimizers(model, cfg)
    stream = batches(make_sessions(cfg), cfg)
    smooth = None
    for step in range(steps):
        if step == WARMUP:
            start = time.perf_counter()
        loss = model.loss(*next(stream))
        for opt in optimizers:
            opt.zero_grad()
        loss.backward()
        for opt in optimizers:
            opt.step()
        smooth = loss.item() if smooth is None else 0.95 * smooth + 0.05 * loss.item()
    return (steps - WARMUP) * cfg.batch / (time.perf_counter() - start)


if __name__ == "__main__":
    torch.manual_seed(2)
    print(f"{train(Config(), STEPS):.1f} samples/s")
