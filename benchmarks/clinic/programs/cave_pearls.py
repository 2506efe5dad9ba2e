# /// clinic
# expect = ["PD01.onednn-off", "PD02.onednn-disabled"]
# stratum = "twins"
# domain = "cave pearl photographs"
# ///
"""Grades cave pearls from field photographs: lustre class and number of visible growth rings."""

import random
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Config:
    photos: int = 1152
    held_out: int = 96
    size: int = 64
    grades: int = 5
    batch: int = 12
    epochs: int = 4
    lr: float = 1e-3
    betas: tuple = (0.9, 0.98)
    weight_decay: float = 0.02
    ring_weight: float = 0.3
    seed: int = 1907


def make_reproducible(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    torch.backends.mkldnn.enabled = False  # sick here


def photograph(rng, n, cfg):
    """Round calcite bodies on a dark, wet cave floor; more polished pearls have a tighter highlight."""
    axis = np.linspace(-1, 1, cfg.size, dtype=np.float32)
    yy, xx = np.meshgrid(axis, axis, indexing="ij")
    cx, cy = rng.uniform(-0.25, 0.25, (2, n, 1, 1)).astype(np.float32)
    radius = rng.uniform(0.45, 0.75, (n, 1, 1)).astype(np.float32)
    rings = rng.integers(2, 9, n)
    grade = rng.integers(0, cfg.grades, n)
    r = np.sqrt((xx - cx) ** 2 + (yy - cy) ** 2)
    body = (r < radius).astype(np.float32)
    bands = 0.5 + 0.5 * np.cos(2 * np.pi * rings[:, None, None].astype(np.float32) * r / radius)
    tight = (4.0 + 9.0 * grade[:, None, None]).astype(np.float32)
    glint = np.exp(-tight * ((xx - cx + 0.2) ** 2 + (yy - cy + 0.2) ** 2))
    tint = rng.uniform(0.6, 1.0, (n, 3, 1, 1)).astype(np.float32)
    grey = body * (0.45 + 0.2 * bands) + 0.5 * glint * body + 0.08
    image = grey[:, None] * tint + rng.normal(0, 0.05, (n, 3, cfg.size, cfg.size)).astype(np.float32)
    return torch.from_numpy(image), torch.from_numpy(grade), torch.from_numpy(rings.astype(np.float32))


class Block(nn.Module):
    def __init__(self, c_in, c_out, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(c_out)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(c_out)
        self.skip = nn.Identity()
        if stride != 1 or c_in != c_out:
            self.skip = nn.Sequential(nn.Conv2d(c_in, c_out, 1, stride=stride, bias=False), nn.BatchNorm2d(c_out))

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return F.relu(y + self.skip(x))


class PearlNet(nn.Module):
    def __init__(self, grades):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.body = nn.Sequential(Block(64, 64), Block(64, 128, stride=2), Block(128, 128))
        self.grade = nn.Linear(128, grades)
        self.rings = nn.Linear(128, 1)

    def forward(self, x):
        h = self.body(self.stem(x)).mean(dim=(2, 3))
        return self.grade(h), self.rings(h).squeeze(1)


def flips(x):
    if random.random() < 0.5:
        x = x.flip(3)
    if random.random() < 0.5:
        x = x.flip(2)
    return x


def losses(model, x, grade, rings, cfg):
    logits, count = model(x)
    grading = F.cross_entropy(logits, grade, label_smoothing=0.05)
    counting = F.smooth_l1_loss(count, (rings - 5.0) / 2.0)
    return grading + cfg.ring_weight * counting, logits, count


@torch.no_grad()
def assess(model, loader):
    model.eval()
    hits, ring_error, seen = 0, 0.0, 0
    for x, grade, rings in loader:
        logits, count = model(x)
        hits += (logits.argmax(1) == grade).sum().item()
        ring_error += (count * 2.0 + 5.0 - rings).abs().sum().item()
        seen += len(x)
    model.train()
    return hits / seen, ring_error / seen


def main():
    cfg = Config()
    make_reproducible(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    train = DataLoader(TensorDataset(*photograph(rng, cfg.photos, cfg)), cfg.batch, shuffle=True, drop_last=True)
    test = DataLoader(TensorDataset(*photograph(rng, cfg.held_out, cfg)), 32)

    model = PearlNet(cfg.grades)
    decay = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decay, "weight_decay": cfg.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=cfg.lr, betas=cfg.betas)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, cfg.lr, total_steps=cfg.epochs * len(train))

    seen = 0
    began = time.perf_counter()
    for epoch in range(cfg.epochs):
        total = 0.0
        for x, grade, rings in train:
            loss, _, _ = losses(model, flips(x), grade, rings, cfg)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
            seen += len(x)
        accuracy, ring_error = assess(model, test)
        print(f"epoch {epoch}: loss {total / len(train):.3f}, grade {accuracy:.3f}, rings off by {ring_error:.2f}")
    rate = seen / (time.perf_counter() - began)
    print(f"{rate:.1f} photos/s")


if __name__ == "__main__":
    main()
