# /// clinic
# expect = ["PD10.unchanged-work"]
# stratum = "twins"
# domain = "graph network, public transport"
# ///
"""Trains a multi-hop graph network that classifies the role of stops in a public transport network."""

import time

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn
import torch.nn.functional as F

STOPS, FEATURES, ROLES = 10_000, 96, 8
HOPS, HIDDEN = 4, 128
STEPS, LR = 340, 2e-3


def build_region(n_stops, n_links, centres, seed):
    """Stops on a plane, links mostly between near stops; features are noisy views of the role."""
    rng = np.random.default_rng(seed)
    pos = rng.random((n_stops, 2))
    order = np.argsort(np.floor(pos[:, 0] * 60) * 10 + pos[:, 1])
    rank = np.empty(n_stops, dtype=np.int64)
    rank[order] = np.arange(n_stops)
    src = rng.integers(0, n_stops, n_links)
    jump = rng.geometric(0.02, n_links) * rng.choice([-1, 1], n_links)
    dst = order[(rank[src] + jump) % n_stops]
    role = (np.floor(pos[:, 0] * 4) + 4 * np.floor(pos[:, 1] * 2)).astype(np.int64)
    feats = centres[role] + rng.normal(0, 2.5, (n_stops, FEATURES))
    return src, dst, torch.from_numpy(feats.astype(np.float32)), torch.from_numpy(role)


def normalised_adjacency(src, dst, n):
    a = sp.coo_matrix((np.ones(len(src), np.float32), (src, dst)), shape=(n, n)).tocsr()
    a = a + a.T + sp.eye(n, dtype=np.float32, format="csr")
    a.data[:] = 1.0
    d = sp.diags(1.0 / np.sqrt(np.asarray(a.sum(1)).ravel())).astype(np.float32)
    a = (d @ a @ d).tocsr().astype(np.float32)
    a.sort_indices()
    return torch.sparse_csr_tensor(
        torch.from_numpy(a.indptr.astype(np.int64)),
        torch.from_numpy(a.indices.astype(np.int64)),
        torch.from_numpy(a.data),
        size=a.shape,
    )


def multi_hop(adj, x, hops):
    views = [x]
    for _ in range(hops):
        views.append(adj @ views[-1])
    return torch.cat(views, dim=1)


class HopNet(nn.Module):
    """Inception-style head over the 0..K hop neighbourhood averages of the node features."""

    def __init__(self, features, hops, hidden, roles):
        super().__init__()
        self.hops = hops
        self.project = nn.Linear(features * (hops + 1), hidden)
        self.norm = nn.LayerNorm(hidden)
        self.hidden = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, roles)
        self.dropout = nn.Dropout(0.2)

    def forward(self, adj, x):  # sick
        x = multi_hop(adj, x, self.hops)  # sick here

    def forward(self, x):  # well
        h = F.relu(self.norm(self.project(x)))
        h = h + F.relu(self.hidden(self.dropout(h)))
        return self.out(h)


torch.manual_seed(5)
role_centres = np.random.default_rng(0).normal(0, 0.6, (ROLES, FEATURES))
train_src, train_dst, train_x, train_y = build_region(STOPS, 7 * STOPS, role_centres, seed=1)
valid_src, valid_dst, valid_x, valid_y = build_region(2000, 14_000, role_centres, seed=2)
train_adj = normalised_adjacency(train_src, train_dst, STOPS)
valid_adj = normalised_adjacency(valid_src, valid_dst, 2000)
train_x = multi_hop(train_adj, train_x, HOPS)  # well
valid_x = multi_hop(valid_adj, valid_x, HOPS)  # well

model = HopNet(FEATURES, HOPS, HIDDEN, ROLES)
optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=1e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=LR * 2, total_steps=STEPS)

started = time.perf_counter()
for step in range(1, STEPS + 1):
    logits = model(train_adj, train_x)  # sick
    logits = model(train_x)  # well
    loss = F.cross_entropy(logits, train_y, label_smoothing=0.05)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step == 5:
        started = time.perf_counter()
    if step % 40 == 0:
        model.eval()
        with torch.no_grad():
            predicted = model(valid_adj, valid_x).argmax(1)  # sick
            predicted = model(valid_x).argmax(1)  # well
        model.train()
        hit_rate = (predicted == valid_y).float().mean().item()
        print(f"step {step:4d}  loss {loss.item():.4f}  unseen region accuracy {hit_rate:.3f}")

print(f"{(STEPS - 5) / (time.perf_counter() - started):.2f} steps/s")
