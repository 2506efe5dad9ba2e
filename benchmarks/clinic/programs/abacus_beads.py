# /// clinic
# expect = ["PD09.dense-embedding-gradient"]
# stratum = "twins"
# domain = "abacus-bead jewellery"
# ///
#!/usr/bin/env python
"""Price jewellery that is strung from old abacus beads.

A piece is a string of twelve beads; every bead carries the code of the lot it was bought in (hashed into buckets).
With the lots go the wood or stone, the workshop, the clasp and a few measurements; the model returns a location and a
spread for the logarithm of the price.
"""

import argparse
import math
import time

import numpy as np
import torch
from torch import nn

MATERIALS, WORKSHOPS, CLASPS, BEADS = 24, 300, 9, 12


def parse_args():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--pieces", type=int, default=112_640)
    p.add_argument("--held-out", type=int, default=10_240)
    p.add_argument("--buckets", type=int, default=2**18, help="hash buckets for the lot codes")
    p.add_argument("--dim", type=int, default=16)
    p.add_argument("--hidden", type=int, default=384)
    p.add_argument("--batch-size", type=int, default=1024)
    p.add_argument("--epochs", type=int, default=6)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=3)
    return p.parse_args()


def make_ledger(args):
    """The shop's ledger: its columns with one entry a piece, and the lots of the beads."""
    rng = np.random.default_rng(args.seed)
    n = args.pieces
    lots = (rng.pareto(0.4, size=(n, BEADS)) * 50).clip(0, 4e6).astype(np.int64)
    material = rng.integers(MATERIALS, size=n)
    workshop = rng.integers(WORKSHOPS, size=n)
    clasp = rng.integers(CLASPS, size=n)
    ledger = {
        "material": material,
        "workshop": workshop,
        "clasp": clasp,
        "grams": rng.gamma(6.0, 9.0, size=n),
        "bore_mm": rng.normal(3.2, 0.4, size=n),
        "age_years": rng.gamma(2.0, 30.0, size=n),
        "cracks": rng.poisson(0.7, size=n),
    }
    rarity = np.log1p(lots).mean(axis=1)
    worth = rng.normal(0, 0.5, size=MATERIALS)[material] + rng.normal(0, 0.3, size=WORKSHOPS)[workshop]
    worth += 0.35 * rarity + 0.3 * np.log(ledger["grams"]) + 0.004 * ledger["age_years"] - 0.15 * ledger["cracks"]
    ledger["log_price"] = worth + rng.normal(0, 0.2, size=n)
    return ledger, (lots * 2_654_435_761 % 2**32) % args.buckets


def tensors(ledger, lots):
    measures = np.stack([ledger[name] for name in ("grams", "bore_mm", "age_years", "cracks")], axis=1)
    measures = ((measures - measures.mean(0)) / measures.std(0)).astype(np.float32)
    kinds = np.stack([ledger[name] for name in ("material", "workshop", "clasp")], axis=1)
    price = ledger["log_price"].astype(np.float32)
    return [torch.from_numpy(a) for a in (lots, kinds, measures, price - price.mean())]


class PieceModel(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.lots = nn.EmbeddingBag(args.buckets, args.dim, mode="mean")  # sick here
        self.lots = nn.EmbeddingBag(args.buckets, args.dim, mode="mean", sparse=True)  # well
        self.material = nn.Embedding(MATERIALS, 8)
        self.workshop = nn.Embedding(WORKSHOPS, 8)
        self.clasp = nn.Embedding(CLASPS, 4)
        width = args.dim + 20 + 4
        self.body = nn.Sequential(
            nn.Linear(width, args.hidden),
            nn.LayerNorm(args.hidden),
            nn.SiLU(),
            nn.Linear(args.hidden, args.hidden),
            nn.LayerNorm(args.hidden),
            nn.SiLU(),
            nn.Linear(args.hidden, args.hidden),
            nn.SiLU(),
            nn.Linear(args.hidden, 2),
        )
        nn.init.normal_(self.lots.weight, std=0.05)

    def forward(self, lots, kinds, measures):
        parts = [
            self.lots(lots),
            self.material(kinds[:, 0]),
            self.workshop(kinds[:, 1]),
            self.clasp(kinds[:, 2]),
            measures,
        ]
        mean, raw = self.body(torch.cat(parts, dim=1)).unbind(1)
        return mean, nn.functional.softplus(raw) + 1e-2


def negative_log_likelihood(mean, spread, price):
    return (torch.log(spread) + 0.5 * ((price - mean) / spread) ** 2).mean()


@torch.no_grad()
def appraise(model, data, rows, batch_size):
    model.eval()
    error, inside = 0.0, 0.0
    for part in rows.split(batch_size):
        lots, kinds, measures, price = (column[part] for column in data)
        mean, spread = model(lots, kinds, measures)
        error += (mean - price).abs().sum().item()
        inside += ((mean - price).abs() < 1.645 * spread).float().sum().item()
    model.train()
    return error / len(rows), inside / len(rows)


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    data = tensors(*make_ledger(args))
    shuffled = torch.randperm(args.pieces)
    held_out, rows = shuffled[: args.held_out], shuffled[args.held_out :]

    model = PieceModel(args)
    optimizers = [torch.optim.Adam(model.parameters(), lr=args.lr)]  # sick here
    dense = [p for name, p in model.named_parameters() if name != "lots.weight"]  # well
    optimizers = [  # well
        torch.optim.Adam(dense, lr=args.lr),  # well
        torch.optim.SparseAdam([model.lots.weight], lr=args.lr),  # well
    ]  # well
    steps = args.epochs * (len(rows) // args.batch_size)
    schedules = [torch.optim.lr_scheduler.LinearLR(o, 1.0, 0.05, total_iters=steps) for o in optimizers]

    began = time.perf_counter()
    done = 0
    for epoch in range(1, args.epochs + 1):
        total = 0.0
        order = rows[torch.randperm(len(rows))]
        batches = order[: len(order) // args.batch_size * args.batch_size].split(args.batch_size)
        for part in batches:
            lots, kinds, measures, price = (column[part] for column in data)
            mean, spread = model(lots, kinds, measures)
            loss = negative_log_likelihood(mean, spread, price)
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer, schedule in zip(optimizers, schedules):
                optimizer.step()
                schedule.step()
            total += loss.item()
            done += len(part)
        error, inside = appraise(model, data, held_out, args.batch_size)
        print(f"epoch {epoch}  nll {total / len(batches):.4f}  error x{math.exp(error):.3f}  in band {inside:.3f}")
        torch.save(model.state_dict(), "beads.pt")
    print(f"{done / (time.perf_counter() - began):.1f} pieces/s")


if __name__ == "__main__":
    main()
