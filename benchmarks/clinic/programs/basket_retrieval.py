# /// clinic
# endless = true
# stratum = "decoys"
# domain = "recommender systems"
# ///
"""Two-tower retrieval for grocery baskets, trained with a softmax over the whole catalogue."""

import gc
import os
import tempfile
import time
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F

USERS, ITEMS, DIM = 4000, 12_000, 64
BATCH, BASKET = 96, 12
LOG_EVERY, CHECK_EVERY, SAVE_EVERY = 50, 500, 1000
STEPS = 50_000
torch.autograd.set_detect_anomaly(False)


def purchase_log(n, seed=2):
    g = torch.Generator().manual_seed(seed)
    taste = torch.randint(0, 40, (USERS,), generator=g)
    user = torch.randint(0, USERS, (n,), generator=g)
    aisle = (taste[user].unsqueeze(1) + torch.randint(0, 3, (n, BASKET + 1), generator=g)) % 40
    rank = torch.rand(n, BASKET + 1, generator=g).pow(3)
    item = aisle * (ITEMS // 40) + (rank * (ITEMS // 40)).long()
    return user, item[:, :-1], item[:, -1]


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Embedding(USERS, DIM)
        self.item = nn.Embedding(ITEMS, DIM)
        self.mix = nn.Sequential(nn.Linear(2 * DIM, 96), nn.ReLU(), nn.Linear(96, DIM))
        for table in (self.user, self.item):
            nn.init.normal_(table.weight, std=0.1)

    def query(self, user, basket):
        return self.mix(torch.cat([self.user(user), self.item(basket).mean(1)], dim=-1))

    def forward(self, user, basket):
        return self.query(user, basket) @ self.item.weight.T


class Meters:
    """Sliding means, read as plain numbers."""

    def __init__(self, span=200):
        self.span, self.values = span, {}

    def push(self, **now):
        for name, value in now.items():
            self.values.setdefault(name, deque(maxlen=self.span)).append(float(value))

    def line(self):
        parts = []
        for name, window in self.values.items():
            parts.append(f"{name} {sum(window) / len(window):.4f}")
        return " ".join(parts)


def gradient_norms(model):
    norms = {}
    for name, p in model.named_parameters():
        if p.grad is not None and p.ndim == 1:
            norms[name] = p.grad.norm().item()
    return norms


@torch.no_grad()
def recall_at(model, user, basket, target, k=20):
    top = model(user, basket).topk(k).indices
    hits = 0
    for row, wanted in zip(top.tolist(), target.tolist()):
        hits += wanted in row
    return hits / len(target)


def main():
    torch.manual_seed(2)
    user, basket, target = purchase_log(60_000)
    held = slice(0, 128)
    model = Towers()
    opt = torch.optim.Adagrad(model.parameters(), lr=0.05)
    meters = Meters()
    since = time.time()
    with tempfile.TemporaryDirectory() as folder:
        for step in range(1, STEPS + 1):
            rows = torch.randint(128, len(user), (BATCH,))
            logits = model(user[rows], basket[rows])
            loss = F.cross_entropy(logits, target[rows])
            opt.zero_grad()
            loss.backward()
            norms = gradient_norms(model)
            opt.step()
            # keep an eye on the small tensors, they blow up first
            meters.push(loss=loss.item(), bias=max(norms.values()))
            if loss.item() != loss.item():
                raise FloatingPointError(f"step {step}: {norms}")
            if step % LOG_EVERY == 0:
                rate = LOG_EVERY / (time.time() - since)
                print(f"step {step} {meters.line()} {rate:.2f} steps/s", flush=True)
                since = time.time()
            if step % CHECK_EVERY == 0:
                print(f"  recall@20 {recall_at(model, user[held], basket[held], target[held]):.3f}", flush=True)
                gc.collect()
            if step % SAVE_EVERY == 0:
                torch.save(model.state_dict(), os.path.join(folder, "towers.pt"))


if __name__ == "__main__":
    main()
