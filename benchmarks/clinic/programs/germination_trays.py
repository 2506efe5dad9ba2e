# /// clinic
# expect = ["PD03.same-result"]
# stratum = "twins"
# domain = "seed-bank germination trays"
# ///
#!/usr/bin/env python
# coding: utf-8

# # Seed-bank germination trays
#
# One photograph per tray and day, 6 x 6 cells per tray. We want a germinated / not germinated call per cell, and
# the day is given as a second input because viability tests are read at fixed days.

# In[1]:


import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(11)
rng = np.random.default_rng(11)

CELLS = 6
PX = 8
DAYS = 16
SIDE = CELLS * PX
TRAIN_TRAYS = 44
VAL_TRAYS = 8
EPOCHS = 19
BATCH = 32
archive_dir = Path("trays")


# Photograph the trays (accession files as the camera rig writes them: one compressed archive per tray)

# In[2]:


def photograph_tray(rng):
    onset = np.where(rng.random((CELLS, CELLS)) < 0.7, rng.gamma(6.0, 1.3, (CELLS, CELLS)), 99.0)
    yy, xx = np.mgrid[:PX, :PX] - (PX - 1) / 2
    soil = np.array([92.0, 70.0, 52.0]) + rng.normal(0, 8, 3)
    frames = np.empty((DAYS, 3, SIDE, SIDE), dtype=np.uint8)
    for day in range(DAYS):
        grown = np.clip(day - onset, 0, 6)
        radius = 0.7 + 0.45 * grown
        blob = np.exp(-(yy**2 + xx**2)[None, None] / (2 * radius[:, :, None, None] ** 2))
        blob = blob * (grown > 0)[:, :, None, None]
        blob = blob.transpose(0, 2, 1, 3).reshape(SIDE, SIDE)
        light = rng.uniform(0.8, 1.15)
        img = soil[:, None, None] + blob * np.array([-20.0, 75.0, -10.0])[:, None, None]
        frames[day] = np.clip(img * light + rng.normal(0, 12, img.shape), 0, 255)
    sprouted = (np.arange(DAYS)[:, None, None] > onset).reshape(DAYS, -1).astype(np.uint8)
    return frames, sprouted


archive_dir.mkdir(exist_ok=True)
for t in range(TRAIN_TRAYS + VAL_TRAYS):
    frames, sprouted = photograph_tray(rng)
    np.savez_compressed(archive_dir / f"tray_{t:03d}.npz", frames=frames, sprouted=sprouted)
sizes = [p.stat().st_size for p in archive_dir.glob("*.npz")]
print(len(sizes), "trays,", sum(sizes) // 1024, "KiB")


# In[3]:


class TrayPhotos(Dataset):
    """(photograph, day, 36 labels); index runs over trays and days."""

    def __init__(self, paths, train):
        self.trays = [np.load(p) for p in paths]  # sick here
        self.trays = [dict(np.load(p)) for p in paths]  # well
        self.train = train

    def __len__(self):
        return len(self.trays) * DAYS

    def __getitem__(self, i):
        tray, day = self.trays[i // DAYS], i % DAYS
        photo = tray["frames"][day]  # here
        labels = tray["sprouted"][day].reshape(CELLS, CELLS)  # here
        if self.train:
            turn = np.random.randint(4)
            photo, labels = np.rot90(photo, turn, axes=(1, 2)), np.rot90(labels, turn)
            if np.random.rand() < 0.5:
                photo, labels = photo[:, :, ::-1], labels[:, ::-1]
        return (
            torch.from_numpy(np.ascontiguousarray(photo)),
            torch.tensor(day / DAYS, dtype=torch.float32),
            torch.from_numpy(np.ascontiguousarray(labels)),
        )


paths = sorted(archive_dir.glob("*.npz"))
train_dl = DataLoader(TrayPhotos(paths[:TRAIN_TRAYS], True), batch_size=BATCH, shuffle=True, drop_last=True)
val_dl = DataLoader(TrayPhotos(paths[TRAIN_TRAYS:], False), batch_size=64)


# In[4]:


class TrayNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 5, stride=2, padding=2), nn.BatchNorm2d(width), nn.ReLU())
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.day = nn.Linear(1, 2 * width)
        self.head = nn.Conv2d(2 * width, 1, 1)

    def forward(self, photo, day):
        x = photo.float().div(127.5).sub(1)
        x = self.body(self.stem(x))
        x = F.relu(x + self.day(day[:, None])[:, :, None, None])
        return self.head(x)[:, 0]


model = TrayNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=EPOCHS * len(train_dl))
print(sum(p.numel() for p in model.parameters()), "parameters")


# In[5]:


@torch.no_grad()
def read_trays(model, dl):
    model.eval()
    right = cells = 0
    loss = 0.0
    for photo, day, labels in dl:
        logits = model(photo, day)
        loss += F.binary_cross_entropy_with_logits(logits, labels.float(), reduction="sum").item()
        right += ((logits > 0) == labels.bool()).sum().item()
        cells += labels.numel()
    model.train()
    return loss / cells, right / cells


# In[6]:


seen = 0
best = 9.0
t0 = time.perf_counter()
for epoch in range(EPOCHS):
    running = 0.0
    for photo, day, labels in train_dl:
        loss = F.binary_cross_entropy_with_logits(model(photo, day), labels.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        running += loss.item()
        seen += len(photo)
    val_loss, val_acc = read_trays(model, val_dl)
    print(f"epoch {epoch:2d}  train {running / len(train_dl):.4f}  val {val_loss:.4f}  cells right {val_acc:.3f}")
    if val_loss < best:
        best = val_loss
        torch.save(model.state_dict(), "traynet.pt")
rate = seen / (time.perf_counter() - t0)


# In[7]:


print("best validation loss", round(best, 4))
print(f"{rate:.1f} photos/s")
