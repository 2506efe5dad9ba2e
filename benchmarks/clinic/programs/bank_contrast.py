# /// clinic
# expect = ["PD08"]
# stratum = "twins"
# domain = "contrastive learning of images (plain loop)"
# ///
"""Train a small encoder with an InfoNCE loss against a memory bank of past embeddings."""

import time

import torch
import torch.nn as nn
import torch.nn.functional as F

IMAGES = 5000
SIDE = 24
DIM = 192
BANK = 49152
NEGATIVES = 2048
BATCH = 48
TEMPERATURE = 0.1
STEPS = 360
WARMUP = 20


class Encoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 24, 3, padding=1),
            nn.BatchNorm2d(24),
            nn.ReLU(),
            nn.Conv2d(24, 32, 3, stride=2, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        )
        self.project = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, dim))

    def forward(self, x):
        return F.normalize(self.project(self.features(x)), dim=-1)


class MemoryBank(nn.Module):
    def __init__(self, size, dim):
        super().__init__()
        self.register_buffer("entries", F.normalize(torch.randn(size, dim), dim=-1))
        self.size = size
        self.head = 0  # well

    @torch.no_grad()
    def enqueue(self, z):
        self.entries = torch.cat([z, self.entries])[: self.size]  # sick here
        rows = (self.head + torch.arange(len(z))) % self.size  # well
        self.entries[rows] = z  # well
        self.head = (self.head + len(z)) % self.size  # well

    def negatives(self, n):
        return self.entries[torch.randint(self.size, (n,))]


def augment(x):
    if torch.rand(()) < 0.5:
        x = x.flip(-1)
    shift = torch.randint(-3, 4, (2,)).tolist()
    x = x.roll(shift, (-2, -1))
    gain = 0.7 + 0.6 * torch.rand(len(x), 3, 1, 1)
    return x * gain + 0.1 * torch.randn_like(x)


def info_nce(query, key, negatives):
    positive = (query * key).sum(-1, keepdim=True)
    logits = torch.cat([positive, query @ negatives.T], 1) / TEMPERATURE
    return F.cross_entropy(logits, torch.zeros(len(query), dtype=torch.long))


def main():
    torch.manual_seed(4)
    coarse = torch.randn(IMAGES, 3, 6, 6)
    images = F.interpolate(coarse, size=SIDE, mode="bilinear", align_corners=False)
    encoder, bank = Encoder(DIM), MemoryBank(BANK, DIM)
    teacher = Encoder(DIM).requires_grad_(False)
    teacher.load_state_dict(encoder.state_dict())
    opt = torch.optim.SGD(encoder.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)

    start, average = None, 0.0
    for step in range(STEPS):
        if step == WARMUP:
            start = time.perf_counter()
        x = images[torch.randint(IMAGES, (BATCH,))]
        query = encoder(augment(x))
        with torch.no_grad():
            key = teacher(augment(x))
        loss = info_nce(query, key, bank.negatives(NEGATIVES))
        opt.zero_grad()
        loss.backward()
        opt.step()
        bank.enqueue(key)
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), encoder.parameters()):
                slow.lerp_(fast, 0.01)
        average = 0.98 * average + 0.02 * loss.item()
    print(f"{(STEPS - WARMUP) * BATCH / (time.perf_counter() - start):.1f} samples/s")


if __name__ == "__main__":
    main()
