# /// clinic
# expect = ["PD07.float64"]
# stratum = "twins"
# domain = "graphs"
# ///
# %% [markdown]
# Node classification on a citation-like graph, GraphSAGE flavour with sampled neighbours.

# %%
"""Exported from graph_nodes.ipynb"""

import time

import numpy as np
import torch
from torch import nn

rng = np.random.default_rng(5)
N_NODES, N_FEAT, N_CLASS, FANOUT = 6000, 256, 7, 8

# %% the graph
community = rng.integers(0, N_CLASS, size=N_NODES)
centres = rng.normal(size=(N_CLASS, N_FEAT))
raw_features = centres[community] * 0.3 + rng.normal(size=(N_NODES, N_FEAT))
neighbours = np.empty((N_NODES, 32), dtype=np.int64)
by_class = [np.flatnonzero(community == c) for c in range(N_CLASS)]
for v in range(N_NODES):
    own = rng.choice(by_class[community[v]], size=24)
    neighbours[v] = np.concatenate([own, rng.integers(0, N_NODES, size=8)])

# %% tensors
features = torch.from_numpy(raw_features)
features = features.float()  # well
labels = torch.from_numpy(community)
adj = torch.from_numpy(neighbours)


# %% model
class Sage(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.own = nn.Linear(d_in, d_out)
        self.agg = nn.Linear(d_in, d_out, bias=False)

    def forward(self, x_self, x_neigh):
        return self.own(x_self) + self.agg(x_neigh.mean(dim=-2))


class TwoHop(nn.Module):
    def __init__(self, d_in, hidden, d_out):
        super().__init__()
        self.l1 = Sage(d_in, hidden)
        self.l2 = Sage(hidden, hidden)
        self.mix = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.out = nn.Linear(hidden, d_out)

    def forward(self, x0, x1, x2):
        h0 = torch.relu(self.l1(x0, x1))
        h1 = torch.relu(self.l1(x1, x2))
        return self.out(self.mix(self.l2(h0, self.mix(h1))))


torch.manual_seed(0)
model = TwoHop(N_FEAT, 256, N_CLASS).to(features.dtype)  # here
optimizer = torch.optim.Adam(model.parameters(), lr=5e-4, weight_decay=1e-5)
criterion = nn.CrossEntropyLoss()


# %% sampling
def sample(nodes, k):
    cols = torch.randint(adj.shape[1], (*nodes.shape, k))
    return adj[nodes.unsqueeze(-1), cols]


def batch(size):
    v = torch.randint(N_NODES, (size,))
    n1 = sample(v, FANOUT)
    n2 = sample(n1, 4)
    return features[v], features[n1], features[n2], labels[v]


# %% train
STEPS, BATCH, WARM = 320, 160, 6
for step in range(STEPS):
    if step == WARM:
        t0 = time.perf_counter()
    x0, x1, x2, y = batch(BATCH)
    logits = model(x0, x1, x2)
    loss = criterion(logits, y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        acc = (logits.argmax(1) == y).sum() / BATCH
        print(step, round(loss.item(), 4), round(acc.item(), 3))

# %%
print(f"{(STEPS - WARM) * BATCH / (time.perf_counter() - t0):.1f} nodes/s")
