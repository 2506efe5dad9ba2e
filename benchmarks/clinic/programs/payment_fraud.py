# /// clinic
# expect = ["PD03"]
# stratum = "twins"
# domain = "tabular fraud detection"
# ///
"""Train a tabular network that finds fraudulent card payments."""

import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset


@dataclass
class Config:
    rows: int = 20000
    fraud_rate: float = 0.02
    numeric: int = 30
    cards: tuple = (500, 200, 80, 40, 24, 12)
    embed: int = 16
    hidden: int = 640
    batch: int = 64
    epochs: int = 3
    lr: float = 1e-3


class BalancedSampler(Sampler):
    """Draws rows so that both classes are seen equally often."""

    def __init__(self, labels, seed=0):
        labels = np.asarray(labels)
        counts = np.bincount(labels)
        weights = 1.0 / counts[labels]
        self.probs = weights / weights.sum()
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return len(self.probs)

    def __iter__(self):
        n = len(self.probs)
        for _ in range(n):  # sick
            yield int(self.rng.choice(n, p=self.probs))  # sick here
        yield from self.rng.choice(n, size=n, p=self.probs).tolist()  # well


class FraudNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(c, cfg.embed) for c in cfg.cards)
        width = cfg.numeric + cfg.embed * len(cfg.cards)
        self.norm = nn.BatchNorm1d(cfg.numeric)
        self.body = nn.Sequential(
            nn.Linear(width, cfg.hidden),
            nn.SiLU(),
            nn.Dropout(0.1),
            nn.Linear(cfg.hidden, cfg.hidden),
            nn.SiLU(),
            nn.Dropout(0.1),
            nn.Linear(cfg.hidden, cfg.hidden),
            nn.SiLU(),
            nn.Linear(cfg.hidden, 1),
        )

    def forward(self, cats, nums):
        parts = [table(cats[:, i]) for i, table in enumerate(self.tables)]
        return self.body(torch.cat([*parts, self.norm(nums)], dim=1)).squeeze(1)


def make_payments(cfg):
    rng = np.random.default_rng(11)
    labels = (rng.random(cfg.rows) < cfg.fraud_rate).astype(np.int64)
    nums = rng.normal(size=(cfg.rows, cfg.numeric)) + 0.4 * labels[:, None]
    cats = np.stack([rng.integers(0, c, cfg.rows) for c in cfg.cards], axis=1)
    return torch.from_numpy(cats), torch.from_numpy(nums).float(), torch.from_numpy(labels)


class Trainer:
    def __init__(self, cfg):
        torch.manual_seed(1)
        self.cfg = cfg
        cats, nums, labels = make_payments(cfg)
        self.loader = DataLoader(
            TensorDataset(cats, nums, labels.float()),
            batch_size=cfg.batch,
            sampler=BalancedSampler(labels),
            drop_last=True,
        )
        self.model = FraudNet(cfg)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=cfg.lr, fused=True)
        self.loss_fn = nn.BCEWithLogitsLoss()
        self.steps = 0

    def train_step(self, cats, nums, labels):
        loss = self.loss_fn(self.model(cats, nums), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.steps += 1

    def fit(self):
        start = 0.0
        for _ in range(self.cfg.epochs):
            for batch in self.loader:
                self.train_step(*batch)
                if self.steps == 20:
                    start = time.perf_counter()
        return (self.steps - 20) / (time.perf_counter() - start)


if __name__ == "__main__":
    print(f"{Trainer(Config()).fit():.1f} steps/s")
