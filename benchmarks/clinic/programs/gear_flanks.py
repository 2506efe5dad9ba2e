# /// clinic
# expect = ["PD10.broadcast-then-sum"]
# stratum = "twins"
# domain = "gear hobbing"
# ///
# %% [markdown]
# # Shape code of hobbed tooth flanks
# Probe points of one tooth flank after gear hobbing -> PointNet encoder -> code -> folding decoder (FoldingNet).
# The code is meant to tell lead crowning, profile slope and feed marks apart.

# %%
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(20)
rng = np.random.default_rng(20)

N_FLANKS, N_VAL = 240, 80
N_POINTS, GRID = 784, 28
BATCH, EPOCHS = 4, 4
CODE = 64
LR = 1e-3
NORMAL_WEIGHT, CODE_WEIGHT = 0.1, 1e-4


# %% Involute flanks with the deviations that a hob leaves
def probe_flanks(count, points):
    u = rng.uniform(0, 1, (count, points)).astype(np.float32)
    v = rng.uniform(-1, 1, (count, points)).astype(np.float32)
    roll = 0.25 + 0.45 * u
    base, helix, crown, slope, feed, marks = (
        rng.uniform(low, high, (count, 1)).astype(np.float32)
        for low, high in [(0.8, 1.2), (-0.4, 0.4), (0.0, 0.08), (-0.06, 0.06), (4, 12), (0.0, 0.03)]
    )
    x = base * (np.cos(roll) + roll * np.sin(roll))
    y = base * (np.sin(roll) - roll * np.cos(roll))
    deviation = crown * v**2 + slope * (u - 0.5) + marks * np.cos(2 * np.pi * feed * v / 2)
    twist = helix * v
    x, y = x * np.cos(twist) - (y + deviation) * np.sin(twist), x * np.sin(twist) + (y + deviation) * np.cos(twist)
    cloud = np.stack([x, y, v], axis=-1) + 0.003 * rng.standard_normal((count, points, 3), dtype=np.float32)
    cloud -= cloud.mean(1, keepdims=True)
    cloud /= np.linalg.norm(cloud, axis=-1).max(1)[:, None, None]
    return torch.from_numpy(cloud.astype(np.float32)), torch.from_numpy(np.hstack([crown, slope, marks]))


flanks, _ = probe_flanks(N_FLANKS, N_POINTS)
val_flanks, val_truth = probe_flanks(N_VAL, N_POINTS)
print("flanks", tuple(flanks.shape), "val", tuple(val_flanks.shape))


# %% Model
class PointEncoder(nn.Module):
    def __init__(self, code, widths=(64, 128, 256)):
        super().__init__()
        layers, cin = [], 3
        for width in widths:
            layers += [nn.Conv1d(cin, width, 1, bias=False), nn.BatchNorm1d(width), nn.ReLU(inplace=True)]
            cin = width
        self.points = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Linear(cin, 128), nn.ReLU(inplace=True), nn.Linear(128, code))

    def forward(self, cloud):
        return self.head(self.points(cloud.transpose(1, 2)).amax(-1))


class Fold(nn.Module):
    def __init__(self, cin, code, hidden):
        super().__init__()
        self.place = nn.Linear(cin, hidden)
        self.code = nn.Linear(code, hidden, bias=False)
        self.mlp = nn.Sequential(
            nn.ReLU(inplace=True), nn.Linear(hidden, hidden), nn.ReLU(inplace=True), nn.Linear(hidden, 3)
        )

    def forward(self, place, code):
        return self.mlp(self.place(place) + self.code(code).unsqueeze(1))


class FoldingNet(nn.Module):
    def __init__(self, code, grid, hidden=128):
        super().__init__()
        self.encoder = PointEncoder(code)
        line = torch.linspace(-1, 1, grid)
        self.register_buffer("sheet", torch.cartesian_prod(line, line))
        self.fold1, self.fold2 = Fold(2, code, hidden), Fold(3, code, hidden)

    def forward(self, cloud):
        code = self.encoder(cloud)
        sheet = self.sheet.expand(len(cloud), -1, -1)
        rough = self.fold1(sheet, code)
        return rough + self.fold2(rough, code), code


# %% Losses
def pairwise_sq_dist(a, b):
    """(B, N, 3), (B, M, 3) -> (B, N, M)"""
    return ((a.unsqueeze(2) - b.unsqueeze(1)) ** 2).sum(-1)  # sick here
    norms = (a * a).sum(-1).unsqueeze(2) + (b * b).sum(-1).unsqueeze(1)  # well
    return torch.baddbmm(norms, a, b.transpose(1, 2), alpha=-2)  # well


def chamfer(pred, target):
    d = pairwise_sq_dist(pred, target)
    return d.min(2).values.mean() + d.min(1).values.mean()


def sheet_smoothness(pred):
    sheet = pred.unflatten(1, (GRID, GRID))
    bend_u = sheet[:, 2:] - 2 * sheet[:, 1:-1] + sheet[:, :-2]
    bend_v = sheet[:, :, 2:] - 2 * sheet[:, :, 1:-1] + sheet[:, :, :-2]
    return bend_u.square().mean() + bend_v.square().mean()


def criterion(pred, code, target):
    return chamfer(pred, target) + NORMAL_WEIGHT * sheet_smoothness(pred) + CODE_WEIGHT * code.square().mean()


# %% How well do the codes tell the deviations?
@torch.no_grad()
def evaluate(model):
    model.eval()
    codes, total = [], 0.0
    for cloud in val_flanks.split(BATCH):
        pred, code = model(cloud)
        total += chamfer(pred, cloud).item() * len(cloud)
        codes.append(code)
    model.train()
    code = F.pad(torch.cat(codes)[:, :16], (0, 1), value=1.0)
    fit = torch.linalg.lstsq(code, val_truth).solution
    unexplained = (val_truth - code @ fit).var(0) / val_truth.var(0)
    return total / len(val_flanks), (1 - unexplained).tolist()


# %% Training
model = FoldingNet(CODE, GRID)
optimizer = torch.optim.Adam(model.parameters(), lr=LR, weight_decay=1e-6)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.7)
print(sum(p.numel() for p in model.parameters()), "parameters")

history = []
steps = 0
began = time.perf_counter()
for epoch in range(EPOCHS):
    model.train()
    for index in torch.randperm(N_FLANKS).split(BATCH):
        cloud = flanks[index]
        pred, code = model(cloud)
        loss = criterion(pred, code, cloud)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        steps += 1
    schedule.step()
    distance, explained = evaluate(model)
    print(
        f"epoch {epoch} loss {np.mean(history[-50:]):.4f} val chamfer {distance:.4f} "
        f"R2 crown {explained[0]:.2f} slope {explained[1]:.2f} marks {explained[2]:.2f}"
    )
rate = steps / (time.perf_counter() - began)

# %%
print(f"{rate:.1f} steps/s")
