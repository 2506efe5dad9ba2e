# /// clinic
# expect = ["PD10.element-loop"]
# stratum = "twins"
# domain = "lace bobbin patterns"
# ///
# %% [markdown]
# # Which ground is this pricking?
# A bobbin lace ground is a graph: the pins and crossings are the nodes, the pairs of threads between them are the
# edges.  From the number of crosses and twists at each node and the local geometry we want the family of the ground
# (torchon, dieppe, rose, honeycomb, spider, mixed), with a message passing network written by hand.

# %%
import math  # well
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = 1689
FAMILIES = ["torchon", "dieppe", "rose", "honeycomb", "spider", "mixed"]
PATTERNS = 1600
MAX_NODES = 64
FEATURES = 7
WIDTH = 72
LAYERS = 4
BATCH = 64
EPOCHS = 17

torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)

# %% [markdown]
# ## Synthetic prickings
# Each pricking is a piece of a diagonal lattice, from 5 x 5 to 8 x 8 pins.  The family sets which diagonals carry a
# pair and how many crosses and twists are made; the lace maker makes mistakes.

# %%


def draw_pricking(family):
    rows, cols = rng.integers(5, 9, 2)
    r, c = np.divmod(np.arange(rows * cols), cols)
    kind = np.full(rows * cols, family)
    if FAMILIES[family] == "mixed":
        kind = np.where(rng.random(rows * cols) < 0.5, 0, rng.integers(0, 5, rows * cols))
    crosses = 1 + (kind == 1) + (kind == 2) * ((r + c) % 2)
    twists = (kind == 0) + 2 * (kind == 3) * (r % 2) + (kind == 4) * ((r % 3 == 1) & (c % 3 == 1)) * 3 + (kind == 2)
    wrong = rng.random(rows * cols) < 0.15
    twists = np.where(wrong, rng.integers(0, 4, rows * cols), twists)
    down = (np.abs(r[:, None] - r[None]) == 1) & (np.abs(c[:, None] - c[None]) <= 1)
    straight = (c[:, None] == c[None]) & ((kind[:, None] == 3) | (kind[None] == 3))
    diagonal = (c[:, None] != c[None]) & ((kind[:, None] != 3) | (r[:, None] % 2 == 0))
    adj = down & (straight | diagonal)
    adj = (adj | adj.T) & (rng.random(adj.shape) < 0.97)
    adj = adj & adj.T
    jitter = rng.normal(0, 0.08, (2, rows * cols))
    x = np.stack([crosses, twists, r / 8 + jitter[0], c / 8 + jitter[1], adj.sum(1) / 4, r % 2, c % 2], axis=1)
    return x.astype(np.float32), adj


labels = rng.integers(0, len(FAMILIES), PATTERNS)
feats = torch.zeros(PATTERNS, MAX_NODES, FEATURES)
adjs = torch.zeros(PATTERNS, MAX_NODES, MAX_NODES)
sizes = torch.zeros(PATTERNS, dtype=torch.long)
for i, family in enumerate(labels):
    x, adj = draw_pricking(family)
    n = len(x)
    feats[i, :n] = torch.from_numpy(x)
    adjs[i, :n, :n] = torch.from_numpy(adj.astype(np.float32))
    sizes[i] = n
labels = torch.from_numpy(labels)
adjs = adjs / adjs.sum(-1, keepdim=True).clamp(min=1)
held = torch.arange(PATTERNS) < 192
print(f"{PATTERNS} prickings, {sizes.float().mean():.0f} nodes on average, largest {sizes.max()}")

# %% [markdown]
# ## The network
# Residual graph layers with mean aggregation, then mean and max over the nodes of the pricking.

# %%


class ThreadLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Linear(2 * width, 2 * width)
        self.out = nn.Linear(2 * width, width)

    def forward(self, h, adj):
        m = self.norm(h)
        m = torch.cat([m, adj @ m], dim=-1)
        return h + self.out(F.relu(self.mix(m)))


class GroundNet(nn.Module):
    def __init__(self, width=WIDTH, layers=LAYERS):
        super().__init__()
        self.embed = nn.Linear(FEATURES, width)
        self.layers = nn.ModuleList(ThreadLayer(width) for _ in range(layers))
        self.head = nn.Sequential(
            nn.Linear(2 * width, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, len(FAMILIES))
        )

    def forward(self, x, adj, sizes):
        pooled = []  # sick
        for i, n in enumerate(sizes.tolist()):  # sick here
            h = self.embed(x[i, :n])  # sick
            for layer in self.layers:  # sick
                h = layer(h, adj[i, :n, :n])  # sick here
            pooled.append(torch.cat([h.mean(0), h.amax(0)]))  # sick here
        pooled = torch.stack(pooled)  # sick
        h = self.embed(x)  # well
        for layer in self.layers:  # well
            h = layer(h, adj)  # well
        real = (torch.arange(h.shape[1]) < sizes[:, None]).unsqueeze(-1)  # well
        mean = (h * real).sum(1) / sizes[:, None]  # well
        pooled = torch.cat([mean, h.masked_fill(~real, -math.inf).amax(1)], dim=-1)  # well
        return self.head(pooled)


# %% [markdown]
# ## Training

# %%
model = GroundNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
train_index = torch.nonzero(~held).squeeze(1)
test_index = torch.nonzero(held).squeeze(1)
steps_per_epoch = len(train_index) // BATCH
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * steps_per_epoch)


def accuracy(index):
    model.eval()
    with torch.no_grad():
        right = 0
        for part in index.split(BATCH):
            right += int((model(feats[part], adjs[part], sizes[part]).argmax(1) == labels[part]).sum())
    model.train()
    return right / len(index)


history = []
began = time.perf_counter()
for _epoch in range(EPOCHS):
    order = train_index[torch.randperm(len(train_index))]
    running = torch.zeros(())
    for pick in order.split(BATCH)[:steps_per_epoch]:
        logits = model(feats[pick], adjs[pick], sizes[pick])
        loss = F.cross_entropy(logits, labels[pick])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        running += loss.detach()
    history.append((float(running) / steps_per_epoch, accuracy(test_index)))
took = time.perf_counter() - began

# %%
for epoch, (loss, score) in enumerate(history, 1):
    if epoch % 4 == 1:
        print(f"epoch {epoch:2d}  loss {loss:.3f}  held-out accuracy {score:.3f}")
model.eval()
with torch.no_grad():
    guess = model(feats[test_index], adjs[test_index], sizes[test_index]).argmax(1)
for k, name in enumerate(FAMILIES):
    mine = labels[test_index] == k
    print(f"{name:10s} {float((guess[mine] == k).float().mean()):.2f} of {int(mine.sum())}")

# %%
rate = EPOCHS * steps_per_epoch * BATCH / took
print(f"{rate:.1f} samples/s")
