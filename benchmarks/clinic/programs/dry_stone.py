# /// clinic
# expect = ["PD07.float64"]
# stratum = "twins"
# domain = "bearing load of dry stone walls"
# ///
# %% [markdown]
# # How much load does a dry stone wall bear?
# Patches of wall are surveyed as clouds of stones (centre, size, kind of rock). The bearing load comes
# from friction between neighbours. A continuous-filter network in the manner of SchNet learns it.
# The survey is only good to a centimetre or so, therefore each epoch sees the stones jittered afresh.

# %%
import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(4)
rng = np.random.default_rng(4)

STONES = 24
ROCKS = 5
REACH = 1.6
BASIS = 64
WIDTH = 48
BATCH = 32
EPOCHS = 20

# %% [markdown]
# ## Survey

# %%
FRICTION = np.array([0.35, 0.5, 0.62, 0.71, 0.9])


def survey(patches):
    """Stones in courses, each a bit out of place; the load is a sum over touching pairs."""
    columns, courses = 6, STONES // 6
    grid = np.stack(np.meshgrid(np.arange(columns) * 0.42, np.arange(courses) * 0.3), -1).reshape(-1, 2)
    grid = np.concatenate([grid, np.zeros((STONES, 1))], axis=1)
    position = grid + rng.normal(0, [0.06, 0.04, 0.05], (patches, STONES, 3))
    size = rng.gamma(6.0, 0.03, (patches, STONES))
    rock = rng.integers(0, ROCKS, (patches, STONES))
    gap = np.linalg.norm(position[:, :, None] - position[:, None], axis=-1)
    touch = np.exp(-((gap - 0.3) ** 2) / 0.02) * (1 - np.eye(STONES))
    mu = np.minimum(FRICTION[rock][:, :, None], FRICTION[rock][:, None])
    weight = size[:, :, None] * size[:, None]
    load = (touch * mu * weight).sum((1, 2))
    load = (load - load.mean()) / load.std()
    return (
        torch.tensor(position, dtype=torch.float32),
        torch.tensor(size, dtype=torch.float32),
        torch.tensor(rock),
        torch.tensor(load, dtype=torch.float32),
    )


train_set = TensorDataset(*survey(3072))
valid_set = TensorDataset(*survey(512))
train_loader = DataLoader(train_set, batch_size=BATCH, shuffle=True, drop_last=True)
valid_loader = DataLoader(valid_set, batch_size=BATCH)

# %% [markdown]
# ## Network


# %%
class RadialBasis(nn.Module):
    """Gaussians on a grid of distances, faded out towards the reach of a stone."""

    def __init__(self, reach=REACH, count=BASIS, width=0.2):
        super().__init__()
        centres = np.linspace(0.0, reach, count)
        self.reach = reach
        self.gamma = 0.5 / width**2
        self.register_buffer("centres", torch.from_numpy(centres))  # sick here
        self.register_buffer("centres", torch.from_numpy(centres).float())  # well

    def forward(self, distance):
        distance = distance.clamp(max=self.reach)
        spread = torch.exp(-self.gamma * (distance.unsqueeze(-1) - self.centres) ** 2)  # here
        fade = 0.5 * (torch.cos(math.pi * distance / self.reach) + 1.0)
        return (spread * fade.unsqueeze(-1)).to(distance.dtype)


class Contact(nn.Module):
    """One interaction: every stone gathers from its neighbours through a filter of the distance."""

    def __init__(self):
        super().__init__()
        self.inward = nn.Linear(WIDTH, WIDTH, bias=False)
        self.outward = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, stones, filters):
        gathered = torch.einsum("bijw,bjw->biw", filters, self.inward(stones))
        return stones + self.outward(self.norm(gathered))


class Wall(nn.Module):
    def __init__(self, rounds=2):
        super().__init__()
        self.rock = nn.Embedding(ROCKS, WIDTH)
        self.size = nn.Linear(1, WIDTH)
        self.basis = RadialBasis()
        self.filters = nn.Linear(BASIS, WIDTH)
        self.rounds = nn.ModuleList(Contact() for _ in range(rounds))
        self.head = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, 1))
        self.register_buffer("others", 1.0 - torch.eye(STONES))

    def forward(self, position, size, rock):
        step = position.unsqueeze(2) - position.unsqueeze(1)
        distance = step.square().sum(-1).add(1e-8).sqrt()
        filters = self.filters(self.basis(distance)) * self.others.unsqueeze(-1)
        stones = self.rock(rock) * self.size(size.unsqueeze(-1))
        for contact in self.rounds:
            stones = contact(stones, filters)
        return self.head(stones).squeeze(-1).sum(1)


wall = Wall()
optimizer = torch.optim.AdamW(wall.parameters(), lr=2e-3, weight_decay=1e-4)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=EPOCHS * len(train_loader))
print(f"{sum(p.numel() for p in wall.parameters())} parameters, {len(train_loader)} steps per epoch")

# %% [markdown]
# ## Training

# %%
start = time.perf_counter()
for epoch in range(EPOCHS):
    wall.train()
    total = torch.zeros(())
    for position, size, rock, load in train_loader:
        position = position + 0.008 * torch.randn_like(position)
        loss = F.smooth_l1_loss(wall(position, size, rock), load)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        total += loss.detach()
    wall.eval()
    with torch.inference_mode():
        error = torch.cat([wall(p, s, r) - y for p, s, r, y in valid_loader])
    print(
        f"epoch {epoch:2d}  loss {total.item() / len(train_loader):.4f}  rmse {error.square().mean().sqrt().item():.4f}"
    )
seconds = time.perf_counter() - start

# %%
print(f"total training seconds: {seconds:.1f}")
