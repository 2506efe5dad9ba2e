# /// clinic
# expect = ["PD09.oversized-layer"]
# stratum = "twins"
# domain = "stained glass came corrosion"
# ///
#!/usr/bin/env python
# coding: utf-8

# # Lead came corrosion from protective-glazing microclimate
#
# Loggers in the interspace of 14 chancel windows record eight channels (air and glass temperature, relative
# humidity, acetic and formic acid, SO2, light, condensation). From 512 consecutive readings we predict four
# corrosion measures of the lead came coupons: mass gain, white basic carbonate, sulfate crust, solder pitting.

# In[1]:

import math
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = 1240
N_TRAIN, N_TEST = 912, 144
CHANNELS, LENGTH = 8, 512
D_MODEL, HEADS, LAYERS = 96, 4, 2
HIDDEN = 768
EPOCHS, BATCH = 4, 24
TARGETS = ["mass_gain", "carbonate", "sulfate", "pitting"]

torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)


# ## Synthetic campaigns

# In[2]:


def dew_point(t, rh):
    gamma = np.log(np.clip(rh, 5, 100) / 100) + 17.62 * t / (243.12 + t)
    return 243.12 * gamma / (17.62 - gamma)


def campaigns(n):
    hours = np.arange(LENGTH)[None] + rng.integers(0, 24, (n, 1))
    season = rng.uniform(0, 2 * np.pi, (n, 1))
    weather = np.cumsum(rng.normal(0, 0.25, (n, LENGTH)), 1)
    weather -= weather.mean(1, keepdims=True)
    air = 11 + 8 * np.sin(season) + 4 * np.sin(2 * np.pi * (hours - 9) / 24) + weather
    sun = np.clip(np.sin(2 * np.pi * (hours - 6) / 24), 0, None) * rng.uniform(0.2, 1, (n, 1))
    glass = air + 9 * sun - 2.5 + rng.normal(0, 0.3, air.shape)
    humid = np.clip(72 - 1.6 * (air - 11) + rng.normal(0, 8, (n, 1)) + rng.normal(0, 2, air.shape), 20, 100)
    acetic = rng.gamma(2, 60, (n, 1)) * np.exp(0.03 * (air - 11))
    formic = rng.gamma(2, 20, (n, 1)) * np.exp(0.02 * (air - 11))
    sulfur = np.clip(rng.gamma(1.5, 4, (n, 1)) + rng.normal(0, 1, air.shape), 0, None)
    wet = (glass < dew_point(air, humid)).astype(float)

    gain = (acetic * (humid > 60)).mean(1) / 60 + 0.5 * wet.mean(1)
    carbonate = (formic * wet).mean(1) / 10 + 0.3 * gain
    sulfate = (sulfur * (0.2 + wet)).mean(1) / 3
    pitting = np.abs(np.diff(wet, axis=1)).mean(1) * 12 + 0.2 * sulfate
    y = np.log1p(np.stack([gain, carbonate, sulfate, pitting], 1))
    x = np.stack([air, glass, humid, acetic, formic, sulfur, sun, wet], 1)
    return x.astype(np.float32), y.astype(np.float32)


x_train, y_train = campaigns(N_TRAIN)
x_test, y_test = campaigns(N_TEST)
mu, sd = x_train.mean((0, 2), keepdims=True), x_train.std((0, 2), keepdims=True)
ymu, ysd = y_train.mean(0), y_train.std(0)
x_train, x_test = (x_train - mu) / sd, (x_test - mu) / sd
y_train, y_test = (y_train - ymu) / ysd, (y_test - ymu) / ysd
train_set = TensorDataset(torch.from_numpy(x_train), torch.from_numpy(y_train))
test_set = TensorDataset(torch.from_numpy(x_test), torch.from_numpy(y_test))
print("train", x_train.shape, "test", x_test.shape)


# ## Model

# In[3]:


class Patches(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(CHANNELS, D_MODEL, 8, stride=4, padding=2)
        self.norm = nn.LayerNorm(D_MODEL)
        n = LENGTH // 4
        at = torch.arange(n)[:, None] * torch.exp(torch.arange(0, D_MODEL, 2) * (-math.log(10000.0) / D_MODEL))
        self.register_buffer("position", torch.stack([at.sin(), at.cos()], -1).reshape(1, n, D_MODEL))

    def forward(self, x):
        return self.norm(self.conv(x).transpose(1, 2)) + self.position


class CorrosionNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = Patches()
        layer = nn.TransformerEncoderLayer(
            D_MODEL, HEADS, 3 * D_MODEL, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(D_MODEL)
        self.hidden = nn.Linear(LENGTH // 4 * D_MODEL, HIDDEN)  # sick here
        self.hidden = nn.Linear(D_MODEL, HIDDEN)  # well
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(HIDDEN, len(TARGETS))

    def forward(self, x):
        z = self.norm(self.encoder(self.patches(x)))
        z = z.flatten(1)  # sick here
        z = z.mean(1)  # well
        return self.out(self.drop(F.gelu(self.hidden(z))))


model = CorrosionNet()
print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters")


# ## Training

# In[4]:

train = DataLoader(train_set, batch_size=BATCH, shuffle=True, drop_last=True)
test = DataLoader(test_set, batch_size=48)
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-4, weight_decay=1e-2)
total_steps = EPOCHS * len(train)
scheduler = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda s: min(1.0, (s + 1) / 20) * 0.5 * (1 + math.cos(math.pi * s / total_steps))
)


def evaluate():
    model.eval()
    rest, spread = torch.zeros(len(TARGETS)), torch.zeros(len(TARGETS))
    with torch.inference_mode():
        for x, y in test:
            rest += (model(x) - y).square().sum(0)
            spread += y.square().sum(0)
    model.train()
    return (1 - rest / spread).tolist()


# In[5]:

history = []
start = time.perf_counter()
for epoch in range(EPOCHS):
    running = 0.0
    for x, y in train:
        x = x + 0.05 * torch.randn_like(x)
        loss = F.huber_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        running += loss.item()
    r2 = evaluate()
    history.append({"epoch": epoch, "loss": running / len(train), **dict(zip(TARGETS, r2))})
    print(
        f"epoch {epoch}  huber {running / len(train):.4f}  "
        + "  ".join(f"R2 {name} {value:+.2f}" for name, value in zip(TARGETS, r2))
    )
seconds = time.perf_counter() - start


# In[6]:

best = max(history, key=lambda h: sum(h[t] for t in TARGETS))
print("best epoch", best["epoch"])
rate = total_steps * BATCH / seconds
print(f"{rate:.1f} windows/s")
