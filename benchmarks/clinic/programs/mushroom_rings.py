# /// clinic
# expect = ["PD09.dense-embedding-gradient"]
# stratum = "twins"
# domain = "mushroom rings"
# ///
# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
# ---

# %% [markdown]
# # Fairy rings: how fast does a ring grow?
# Survey volunteers measure the rings of *Marasmius oreades* and its like on the same plots year after year.
# One row is one ring at one visit. We predict the growth of the radius (cm) until the next visit and whether
# the ring is broken by then. The plot has its own vector, as soils and mowing differ in ways nobody writes down.

# %%
import math
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(2024)
rng = np.random.default_rng(2024)

# %% [markdown]
# ## Survey
# Plots are known by their grid reference: 100 m squares, counted row by row over the whole county (480 x 512).

# %%
GRID_ROWS, GRID_COLUMNS = 480, 512
PLOTS, VISITS = 1400, 120_000
SPECIES = ["Marasmius oreades", "Agaricus campestris", "Clitocybe nebularis", "Lepista nuda", "Calvatia gigantea"]
SOILS = ["chalk", "clay", "sand", "loam", "peat"]

squares = rng.choice(GRID_ROWS * GRID_COLUMNS, PLOTS, replace=False)
plot = rng.integers(0, PLOTS, VISITS)
plot_soil = rng.integers(0, len(SOILS), PLOTS)
plot_vigour = rng.normal(0, 1, PLOTS)
plot_traffic = rng.gamma(2.0, 0.5, PLOTS)

survey = pd.DataFrame(
    {
        "square": squares[plot],
        "species": rng.integers(0, len(SPECIES), VISITS),
        "soil": plot_soil[plot],
        "radius": rng.gamma(3.0, 60.0, VISITS),
        "width": rng.gamma(4.0, 5.0, VISITS),
        "fruit_bodies": rng.poisson(14, VISITS),
        "rain_summer": rng.normal(210, 60, VISITS),
        "rain_autumn": rng.normal(260, 70, VISITS),
        "warm_days": rng.poisson(38, VISITS),
        "frost_days": rng.poisson(46, VISITS),
        "mowings": rng.poisson(6, VISITS),
        "grass_height": rng.gamma(5.0, 1.6, VISITS),
        "day": rng.integers(240, 330, VISITS),
        "weeks_to_next": rng.integers(20, 80, VISITS),
    }
)
speed = np.array([0.45, 0.30, 0.22, 0.18, 0.38])[survey.species] * np.exp(0.25 * plot_vigour[plot])
wet = 1 + 0.5 * np.tanh((survey.rain_summer - 200) / 80)
growth = speed * survey.weeks_to_next * wet * np.array([1.2, 0.8, 0.9, 1.1, 0.7])[survey.soil]
survey["growth"] = growth + rng.normal(0, 1.5, VISITS)
odds = 0.8 * plot_traffic[plot] + survey.radius / 150 - 0.06 * survey.width - 2.2
survey["broken"] = (rng.random(VISITS) < 1 / (1 + np.exp(-odds))).astype(np.float32)
survey.head()

# %% [markdown]
# ## Tensors

# %%
MEASURES = [
    "radius",
    "width",
    "fruit_bodies",
    "rain_summer",
    "rain_autumn",
    "warm_days",
    "frost_days",
    "mowings",
    "grass_height",
    "day",
    "weeks_to_next",
]
square = survey["square"].to_numpy()
square = np.unique(square, return_inverse=True)[1]  # well
n_squares = int(square.max()) + 1  # here
codes = torch.from_numpy(np.stack([square, survey.species, survey.soil], 1).astype(np.int64))
x = torch.from_numpy(survey[MEASURES].to_numpy(np.float32))
x = (x - x.mean(0)) / x.std(0)
season = torch.from_numpy(2 * math.pi * survey["day"].to_numpy(np.float32) / 365)
x = torch.cat([x, season.sin()[:, None], season.cos()[:, None]], 1)
growth = torch.from_numpy(survey["growth"].to_numpy(np.float32))
growth_mean, growth_std = growth.mean(), growth.std()
target = torch.stack([(growth - growth_mean) / growth_std, torch.from_numpy(survey["broken"].to_numpy(np.float32))], 1)

order = torch.randperm(VISITS)
held, kept = order[:8000], order[8000:]


# %% [markdown]
# ## Model
# Residual MLP on the standardised measures beside the vectors of plot, species and soil.


# %%
class ResidualBlock(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, width)
        self.outer = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, h):
        return h + self.outer(self.dropout(F.silu(self.inner(self.norm(h)))))


class RingModel(nn.Module):
    def __init__(self, n_measures, width=320, depth=3, dropout=0.1):
        super().__init__()
        self.square = nn.Embedding(n_squares, 20)  # here
        self.species = nn.Embedding(len(SPECIES), 6)
        self.soil = nn.Embedding(len(SOILS), 6)
        self.stem = nn.Linear(n_measures + 20 + 6 + 6, width)
        self.blocks = nn.ModuleList(ResidualBlock(width, dropout) for _ in range(depth))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2))
        nn.init.normal_(self.square.weight, std=0.05)

    def forward(self, codes, x):
        square, species, soil = codes.unbind(1)
        h = self.stem(torch.cat([x, self.square(square), self.species(species), self.soil(soil)], 1))
        for block in self.blocks:
            h = block(h)
        return self.head(h)


def ring_loss(out, target):
    return F.smooth_l1_loss(out[:, 0], target[:, 0]) + 0.5 * F.binary_cross_entropy_with_logits(out[:, 1], target[:, 1])


model = RingModel(x.shape[1])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)


# %%
@torch.no_grad()
def evaluate():
    model.eval()
    out = torch.cat([model(codes[i], x[i]) for i in held.split(2000)])
    model.train()
    error = (out[:, 0] - target[held, 0]).abs().mean() * growth_std
    right = ((out[:, 1] > 0).float() == target[held, 1]).float().mean()
    return error.item(), right.item()


# %% [markdown]
# ## Training

# %%
BATCH, EPOCHS = 1024, 3
history = []
rows = 0
start = time.perf_counter()
for epoch in range(EPOCHS):
    running = 0.0
    batches = kept[torch.randperm(len(kept))].split(BATCH)
    for index in batches:
        optimizer.zero_grad()
        loss = ring_loss(model(codes[index], x[index]), target[index])
        loss.backward()
        optimizer.step()
        running += loss.item()
        rows += len(index)
    error, right = evaluate()
    history.append({"epoch": epoch, "loss": running / len(batches), "error_cm": error, "broken_accuracy": right})
elapsed = time.perf_counter() - start

# %%
print(pd.DataFrame(history).to_string(index=False))
print(f"{rows / elapsed:.1f} rows/s")
