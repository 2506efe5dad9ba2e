# /// clinic
# expect = ["PD09.dense-embedding-gradient"]
# stratum = "twins"
# domain = "recommenders"
# ///
"""Neural collaborative filtering on the purchases of a synthetic web shop.

Implicit feedback: every purchase is a positive, four unseen items are drawn as negatives.
"""

import argparse
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--users", type=int, default=60_000)
    parser.add_argument("--items", type=int, default=25_000)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--purchases", type=int, default=400_000)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--negatives", type=int, default=4)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--report-every", type=int, default=100)
    return parser.parse_args()


def make_purchases(args, rng):
    """Each user belongs to a taste group, and the groups have their own shelf of items."""
    groups = 50
    shelf = args.items // groups
    user = rng.integers(0, args.users, size=args.purchases)
    popular = np.minimum((rng.exponential(0.25, size=args.purchases) * shelf).astype(np.int64), shelf - 1)
    item = (user % groups) * shelf + popular
    stray = rng.random(args.purchases) < 0.15
    item[stray] = rng.integers(0, args.items, size=int(stray.sum()))
    return torch.from_numpy(user), torch.from_numpy(item)


class PurchaseBatches:
    """An endless stream of shuffled index batches with fresh negatives."""

    def __init__(self, user, item, args):
        self.user, self.item = user, item
        self.batch_size, self.negatives, self.items = args.batch_size, args.negatives, args.items

    def __iter__(self):
        while True:
            order = torch.randperm(len(self.user))
            for chunk in order.split(self.batch_size):
                user, positive = self.user[chunk], self.item[chunk]
                negative = torch.randint(self.items, (len(chunk), self.negatives))
                yield user, torch.cat([positive[:, None], negative], dim=1)


class Towers(nn.Module):
    def __init__(self, users, items, dim):
        super().__init__()
        lazy = False  # sick here
        lazy = True  # well
        self.user = nn.Embedding(users, dim, sparse=lazy)  # here
        self.item = nn.Embedding(items, dim, sparse=lazy)  # here
        nn.init.normal_(self.user.weight, std=0.05)
        nn.init.normal_(self.item.weight, std=0.05)

    def forward(self, user, candidates):
        return self.user(user)[:, None, :].expand(-1, candidates.shape[1], -1), self.item(candidates)


class NCF(nn.Module):
    """The product of the two vectors plus a small network on their concatenation."""

    def __init__(self, users, items, dim):
        super().__init__()
        self.towers = Towers(users, items, dim)
        self.deep = nn.Sequential(
            nn.Linear(2 * dim, 256),
            nn.ReLU(),
            nn.Linear(256, 128),
            nn.ReLU(),
            nn.Linear(128, 1),
        )
        self.wide = nn.Linear(dim, 1)

    def forward(self, user, candidates):
        u, v = self.towers(user, candidates)
        return (self.wide(u * v) + self.deep(torch.cat([u, v], dim=-1))).squeeze(-1)


def build_optimizers(model, lr):
    return [torch.optim.Adam(model.parameters(), lr=lr)]  # sick here
    dense = [p for name, p in model.named_parameters() if not name.startswith("towers.")]  # well
    sparse = torch.optim.SparseAdam(list(model.towers.parameters()), lr=lr)  # well
    return [sparse, torch.optim.Adam(dense, lr=lr)]  # well


def train_step(model, optimizers, user, candidates):
    labels = torch.zeros(candidates.shape)
    labels[:, 0] = 1.0
    loss = F.binary_cross_entropy_with_logits(model(user, candidates), labels)
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()  # here
    return loss.detach()


@torch.no_grad()
def hit_rate(model, user, item, items, others=99, k=10):
    candidates = torch.cat([item[:, None], torch.randint(items, (len(item), others))], dim=1)
    scores = model(user, candidates)
    rank = (scores[:, 1:] > scores[:, :1]).sum(dim=1)
    return (rank < k).float().mean().item()


def main():
    args = parse_args()
    torch.manual_seed(3)
    user, item = make_purchases(args, np.random.default_rng(3))
    held_out = 1000
    train = PurchaseBatches(user[held_out:], item[held_out:], args)

    model = NCF(args.users, args.items, args.dim)
    optimizers = build_optimizers(model, args.lr)  # here

    start, running = time.monotonic(), torch.zeros(())
    for step, (batch_user, candidates) in enumerate(train, start=1):
        running += train_step(model, optimizers, batch_user, candidates)
        if step % args.report_every == 0:
            print(
                f"step {step} loss {running.item() / args.report_every:.4f} {time.monotonic() - start:.1f} s",
                flush=True,
            )
            running.zero_()
        if step == args.steps:
            break
    print(f"hit rate at 10: {hit_rate(model, user[:held_out], item[:held_out], args.items):.3f}")


if __name__ == "__main__":
    main()
