# /// clinic
# expect = ["PD04"]
# endless = true
# stratum = "twins"
# domain = "ad ranking"
# ///
"""Click and conversion ranking for banner auctions: deep-and-cross network on hashed features, trained through Accelerate."""

import time
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import release_memory
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Plan:
    fields: int = 22
    buckets: int = 400
    width: int = 24
    dense: int = 13
    layers: tuple = (512, 256)
    batch: int = 768
    accumulate: int = 4
    lr: float = 2e-3
    passes: int = 4000
    impressions: int = 768 * 120


class Impressions(Dataset):
    def __init__(self, plan):
        g = torch.Generator().manual_seed(11)
        n = plan.impressions
        skew = torch.rand(n, plan.fields, generator=g) ** 2.5
        self.ids = (skew * plan.buckets).long() + torch.arange(plan.fields) * plan.buckets
        self.dense = torch.randn(n, plan.dense, generator=g)
        taste = torch.randn(plan.fields * plan.buckets, generator=g)
        logit = taste[self.ids].mean(1) * 3 + self.dense[:, 0] * 0.5 - 1.5
        self.click = torch.bernoulli(logit.sigmoid(), generator=g)
        self.sale = self.click * torch.bernoulli(torch.full((n,), 0.15), generator=g)

    def __len__(self):
        return len(self.click)

    def __getitems__(self, rows):
        rows = torch.as_tensor(rows)
        return self.ids[rows], self.dense[rows], torch.stack([self.click[rows], self.sale[rows]], 1)


class CrossLayer(nn.Module):
    def __init__(self, size, rank=48):
        super().__init__()
        self.u, self.v = nn.Linear(size, rank, bias=False), nn.Linear(rank, size)

    def forward(self, x0, x):
        return x0 * self.v(self.u(x)) + x


class AuctionRanker(nn.Module):
    def __init__(self, plan):
        super().__init__()
        self.table = nn.Embedding(plan.fields * plan.buckets, plan.width)
        nn.init.normal_(self.table.weight, std=0.05)
        size = plan.fields * plan.width + plan.dense
        self.cross = nn.ModuleList(CrossLayer(size) for _ in range(2))
        deep, last = [], size
        for w in plan.layers:
            deep += [nn.Linear(last, w), nn.ReLU()]
            last = w
        self.deep = nn.Sequential(*deep)
        self.out = nn.Linear(last + size, 2)

    def forward(self, ids, dense):
        x0 = torch.cat([self.table(ids).flatten(1), dense], 1)
        x = x0
        for layer in self.cross:
            x = layer(x0, x)
        return self.out(torch.cat([x, self.deep(x0)], 1))


@dataclass
class Window:
    """What one optimizer update has seen, for the dashboard."""

    losses: list = field(default_factory=list)
    kept: tuple = ()
    shown: float = 0.0
    predicted: float = 0.0

    def add(self, loss, logits):
        self.losses.append(loss.detach())
        self.kept = (*self.kept, logits.detach())

    def close(self):
        scores = torch.cat(self.kept)[:, 0].sigmoid()
        self.shown, self.predicted = float(len(scores)), scores.mean().item()
        mean = torch.stack(self.losses).mean().item()
        self.losses.clear()
        self.kept = tuple(release_memory(*self.kept))[:0]  # sick here
        self.kept = ()  # well
        return mean


class Session:
    def __init__(self, plan):
        self.accelerator = Accelerator(cpu=True, gradient_accumulation_steps=plan.accumulate)
        model = AuctionRanker(plan)
        optimizer = torch.optim.Adagrad(model.parameters(), lr=plan.lr)
        loader = DataLoader(Impressions(plan), plan.batch, shuffle=True, drop_last=True, collate_fn=lambda rows: rows)
        self.model, self.optimizer, self.loader = self.accelerator.prepare(model, optimizer, loader)
        self.window, self.updates, self.since = Window(), 0, time.perf_counter()

    def learn(self, ids, dense, target):
        with self.accelerator.accumulate(self.model):
            logits = self.model(ids, dense)
            loss = F.binary_cross_entropy_with_logits(logits, target)
            self.accelerator.backward(loss)
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.window.add(loss, logits)
        if self.accelerator.sync_gradients:
            self.updated()

    def updated(self):
        mean = self.window.close()
        self.updates += 1
        if self.updates % 20 == 0:
            now = time.perf_counter()
            self.accelerator.print(
                f"update {self.updates:5d}  logloss {mean:.4f}  mean ctr {self.window.predicted:.3f}  "
                f"{20 / (now - self.since):.2f} updates/s",
                flush=True,
            )
            self.since = now


if __name__ == "__main__":
    torch.manual_seed(0)
    plan = Plan()
    session = Session(plan)
    for _ in range(plan.passes):
        for batch in session.loader:
            session.learn(*batch)
