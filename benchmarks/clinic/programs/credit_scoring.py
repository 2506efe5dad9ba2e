# /// clinic
# expect = ["PD15.repeated-hooks"]
# stratum = "twins"
# domain = "tabular, consumer credit"
# ///
"""Trains a residual MLP that predicts the default of consumer loans from mixed tabular features."""

import argparse
import time

import torch
from torch import nn
import torch.nn.functional as F


def make_loans(n, seed):
    g = torch.Generator().manual_seed(seed)
    numeric = torch.randn(n, 40, generator=g)
    numeric[:, :8] = numeric[:, :8].exp().log1p()
    cats = torch.stack([torch.randint(0, c, (n,), generator=g) for c in (12, 50, 7, 200)], dim=1)
    w = torch.randn(40, generator=torch.Generator().manual_seed(1))
    score = numeric @ w / 6 + 0.6 * numeric[:, 3] * numeric[:, 11] + 0.3 * (cats[:, 0] % 3).float() - 0.8
    label = (torch.rand(n, generator=g) < torch.sigmoid(score)).float()
    return numeric, cats, label


class ResidualBlock(nn.Module):
    def __init__(self, width, expand, dropout):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, width * expand)
        self.down = nn.Linear(width * expand, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return x + self.down(self.dropout(F.relu(self.up(self.norm(x)))))


class TabularResNet(nn.Module):
    def __init__(self, n_numeric, cardinalities, width=256, depth=4, expand=2, dropout=0.1):
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(c, 8) for c in cardinalities)
        self.stem = nn.Linear(n_numeric + 8 * len(cardinalities), width)
        self.blocks = nn.Sequential(*[ResidualBlock(width, expand, dropout) for _ in range(depth)])
        self.head = nn.Sequential(nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, numeric, cats):
        parts = [emb(cats[:, i]) for i, emb in enumerate(self.embeddings)]
        return self.head(self.blocks(self.stem(torch.cat([numeric, *parts], dim=1)))).squeeze(1)


class Trainer:
    def __init__(self, model, args):
        self.model, self.args = model, args
        self.opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, args.epochs)
        self.step = 0
        self.start = time.perf_counter()

    def guard_gradients(self):
        """Outliers in the income columns can blow up single batches; keep each gradient entry bounded."""
        limit = self.args.grad_limit
        for p in self.model.parameters():
            p.register_hook(lambda g: torch.nan_to_num(g).clamp(-limit, limit))

    def train_epoch(self, numeric, cats, label):
        self.model.train()
        self.guard_gradients()  # sick here
        total = torch.zeros(())
        batches = torch.randperm(len(label)).split(self.args.batch_size)
        for idx in batches:
            loss = F.binary_cross_entropy_with_logits(self.model(numeric[idx], cats[idx]), label[idx])
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += loss.detach()
            self.step += 1
            if self.step == 5:
                self.start = time.perf_counter()
        self.sched.step()
        return (total / len(batches)).item()

    @torch.no_grad()
    def validate(self, numeric, cats, label):
        self.model.eval()
        logits = self.model(numeric, cats)
        return F.binary_cross_entropy_with_logits(logits, label).item()

    def fit(self, train, valid):
        self.guard_gradients()  # well
        best = float("inf")
        for epoch in range(self.args.epochs):
            train_loss = self.train_epoch(*train)
            if epoch % 4 == 3:
                valid_loss = self.validate(*valid)
                best = min(best, valid_loss)
                print(f"epoch {epoch + 1:3d}  train {train_loss:.4f}  valid {valid_loss:.4f}  best {best:.4f}")
        return (self.step - 5) / (time.perf_counter() - self.start)


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--rows", type=int, default=6144)
    p.add_argument("--epochs", type=int, default=40)
    p.add_argument("--batch-size", type=int, default=512)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--grad-limit", type=float, default=0.5)
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    train, valid = make_loans(args.rows, seed=2), make_loans(2048, seed=3)
    model = TabularResNet(40, (12, 50, 7, 200))
    rate = Trainer(model, args).fit(train, valid)
    print(f"{rate:.2f} steps/s")


if __name__ == "__main__":
    main()
