# /// clinic
# expect = ["PD09.dense-embedding-gradient"]
# stratum = "twins"
# domain = "mortality on oyster beds"
# ///
# %% [markdown]
# # Oyster beds: which bags will die over the summer?
# Every bag is described by ten ids (bed cell, hatchery lot, boat, tide slot, and crosses
# of them), hashed into one table, and by eight measurements.

# %%
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 9
BAGS = 192 * 1024
BATCH = 1024
BUCKETS = 2**20
DIM = 16
torch.manual_seed(8)
rng = np.random.default_rng(8)


# %%
def hashed(column, salt):
    """Knuth's multiplicative hash; `salt` keeps the columns apart."""
    mixed = (column.astype(np.uint64) + np.uint64(salt * 1_000_003)) * np.uint64(2654435761)
    return ((mixed >> np.uint64(7)) % np.uint64(BUCKETS)).astype(np.int64)


def survey(bags):
    cell = np.minimum(rng.zipf(1.3, bags), 4000)
    lot = rng.integers(0, 300, bags)
    boat = rng.integers(0, 40, bags)
    tide = rng.integers(0, 28, bags)
    farmer = rng.integers(0, 120, bags)
    columns = [
        cell,
        lot,
        boat,
        tide,
        farmer,
        lot * 28 + tide,
        boat * 28 + tide,
        farmer * 40 + boat,
        cell * 300 + lot,
        farmer * 300 + lot,
    ]
    ids = np.stack([hashed(c, k + 1) for k, c in enumerate(columns)], axis=1)
    measured = rng.normal(size=(bags, 8)).astype(np.float32)
    cell_risk = np.random.default_rng(1).normal(size=4001)
    lot_risk = np.random.default_rng(2).normal(size=300)
    tide_lot = np.random.default_rng(3).normal(size=(300, 28))
    logit = 1.1 * cell_risk[cell] + lot_risk[lot] + 0.9 * tide_lot[lot, tide]
    logit += measured[:, 0] * measured[:, 1] - 0.6 * measured[:, 2]
    dead = rng.random(bags) < 1 / (1 + np.exp(-logit))
    return torch.from_numpy(ids), torch.from_numpy(measured), torch.from_numpy(dead.astype(np.float32))


train = survey(BAGS)
held = survey(4096)
print("bags", len(train[0]), "mortality", round(train[2].mean().item(), 3))


# %%
class Mortality(nn.Module):
    def __init__(self, columns, measured, width=384):
        super().__init__()
        self.table = nn.Embedding(BUCKETS, DIM)  # sick here
        self.table = nn.Embedding(BUCKETS, DIM, sparse=True)  # well
        nn.init.normal_(self.table.weight, std=0.05)
        self.drop = nn.Dropout(0.2)
        self.scale = nn.BatchNorm1d(measured)
        self.mlp = nn.Sequential(
            nn.Linear(columns * DIM + measured, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, width // 2),
            nn.ReLU(),
            nn.Linear(width // 2, 1),
        )

    def forward(self, ids, measured):
        x = torch.cat([self.drop(self.table(ids).flatten(1)), self.scale(measured)], dim=1)
        return self.mlp(x).squeeze(-1)


model = Mortality(train[0].shape[1], train[1].shape[1])
dense = [p for n, p in model.named_parameters() if not n.startswith("table.")]
optimizers = [torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)]  # sick here
optimizers = [  # well
    torch.optim.Adam(dense, lr=1e-3, fused=True),  # well
    torch.optim.SparseAdam(model.table.parameters(), lr=1e-3),  # well
]  # well


# %%
def auc(score, label):
    order = score.argsort()
    rank = torch.empty_like(order)
    rank[order] = torch.arange(1, len(order) + 1)
    pos = label.bool()
    n_pos, n_neg = pos.sum().item(), (~pos).sum().item()
    return (rank[pos].sum().item() - n_pos * (n_pos + 1) / 2) / (n_pos * n_neg)


@torch.inference_mode()
def evaluate():
    model.eval()
    score = model(held[0], held[1])
    model.train()
    return auc(score, held[2])


def train_epoch():
    losses = []
    for rows in torch.randperm(BAGS).split(BATCH):
        ids, measured, dead = (column[rows] for column in train)
        loss = F.binary_cross_entropy_with_logits(model(ids, measured), dead)
        for opt in optimizers:
            opt.zero_grad(set_to_none=True)
        loss.backward()
        for opt in optimizers:
            opt.step()
        losses.append(loss.detach())
    return torch.stack(losses).mean().item()


# %%
t0 = time.time()
for epoch in range(EPOCHS):
    loss = train_epoch()
    print(f"epoch {epoch:02d}: loss {loss:.4f}, held-out AUC {evaluate():.4f}", flush=True)
print(f"total training time {time.time() - t0:.1f} s")
