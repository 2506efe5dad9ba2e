# /// clinic
# expect = ["PD03.iterator-rebuilt"]
# stratum = "twins"
# domain = "harbour seals"
# ///
"""Harbour seal roars in hydrophone recordings: which of six call types is in a window?

A few windows were labelled by hand, one long recording was not.  The network is warmed up on the labelled
windows and then trains itself (FixMatch) on both, in stages with a rising confidence threshold.
"""

import time
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

RATE, CALLS = 4000, 6


@dataclass
class Settings:
    window: int = 1024
    hop: int = 32
    minutes: int = 85
    labelled: int = 1600
    batch: int = 32
    unlabelled_batch: int = 48
    warm_up_epochs: int = 3
    stages: list = field(default_factory=lambda: [0.6, 0.75, 0.9])
    epochs_per_stage: int = 4
    lr: float = 1e-3
    seed: int = 21


def call(kind, length, rng):
    """A roar sweeps down, a growl trembles, ...; pitch and tremble differ by kind."""
    t = np.arange(length, dtype=np.float32) / RATE
    pitch = 120 + 90 * kind + rng.uniform(-15, 15)
    sweep = (-1) ** kind * rng.uniform(60, 120)
    tremble = 1 + 0.5 * np.sin(2 * np.pi * (6 + 4 * kind) * t)
    return np.hanning(length).astype(np.float32) * tremble * np.sin(2 * np.pi * (pitch + sweep * t) * t)


def record_bay(s, rng):
    track = rng.standard_normal(s.minutes * 60 * RATE, dtype=np.float32)
    for _ in range(s.minutes * 40):
        length = int(rng.integers(600, 1800))
        at = int(rng.integers(0, len(track) - length))
        track[at : at + length] += rng.uniform(1, 3) * call(int(rng.integers(CALLS)), length, rng)
    return track


def label_by_hand(s, n, rng):
    kinds = rng.integers(0, CALLS, n)
    windows = rng.standard_normal((n, s.window), dtype=np.float32)
    for row, kind in zip(windows, kinds):
        row += rng.uniform(1, 3) * call(int(kind), s.window, rng)
    return TensorDataset(torch.from_numpy(windows), torch.from_numpy(kinds))


class Hydrophone(Dataset):
    """All overlapping windows of one recording."""

    def __init__(self, track, window, hop):
        self.track = torch.from_numpy(track)
        self.window, self.hop = window, hop

    def __len__(self):
        return (len(self.track) - self.window) // self.hop

    def __getitem__(self, index):
        return self.track[index * self.hop : index * self.hop + self.window]


class CallNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()

        def block(i, o, kernel, stride):
            conv = nn.Conv1d(i, o, kernel, stride, kernel // 2, bias=False)
            return nn.Sequential(conv, nn.BatchNorm1d(o), nn.ReLU(inplace=True))

        self.body = nn.Sequential(
            block(1, width, 31, 4),
            block(width, width * 2, 7, 2),
            block(width * 2, width * 2, 5, 2),
            block(width * 2, width * 4, 5, 2),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
        )
        self.kind = nn.Linear(width * 4, CALLS)

    def forward(self, x):
        return self.kind(self.body(x.unsqueeze(1)))


def weak(x):
    return x * (0.8 + 0.4 * torch.rand(len(x), 1))


def strong(x):
    """Boat noise, a gap, and time reversed in polarity."""
    start = int(torch.randint(0, x.shape[1] - 200, ()))
    x = weak(x) + 0.5 * torch.randn_like(x)
    x[:, start : start + 200] = 0
    return torch.where(torch.rand(len(x), 1) < 0.5, -x, x)


def endless(loader):  # well
    while True:  # well
        yield from loader  # well


# well
# well
def warm_up(model, labelled, epochs):
    for _ in range(epochs):
        for x, kind in labelled:
            yield F.cross_entropy(model(weak(x)), kind), len(x)


def self_training(model, labelled, unlabelled, threshold, epochs, log):
    stream = endless(unlabelled)  # well
    for _ in range(epochs):
        for x, kind in labelled:
            u = next(iter(unlabelled))  # sick here
            u = next(stream)  # well
            with torch.no_grad():
                sure, guess = model(weak(u)).softmax(dim=1).max(dim=1)
            logits = model(torch.cat([weak(x), strong(u)]))
            keep = (sure > threshold).float()
            consistency = (keep * F.cross_entropy(logits[len(x) :], guess, reduction="none")).mean()
            log.append(keep.mean())
            yield F.cross_entropy(logits[: len(x)], kind) + consistency, len(x) + len(u)


def descend(losses, optimizer):
    samples = 0
    for loss, n in losses:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        samples += n
    return samples


@torch.no_grad()
def right(model, data):
    model.eval()
    windows, kinds = data.tensors
    hits = sum((model(w).argmax(1) == k).sum().item() for w, k in zip(windows.split(128), kinds.split(128)))
    model.train()
    return hits / len(kinds)


def main():
    s = Settings()
    rng = np.random.default_rng(s.seed)
    torch.manual_seed(s.seed)
    labelled = DataLoader(label_by_hand(s, s.labelled, rng), s.batch, shuffle=True, drop_last=True)
    unlabelled = DataLoader(
        Hydrophone(record_bay(s, rng), s.window, s.hop), s.unlabelled_batch, shuffle=True, drop_last=True
    )
    test = label_by_hand(s, 512, rng)
    model = CallNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=s.lr, weight_decay=1e-3)

    began = time.perf_counter()
    samples = descend(warm_up(model, labelled, s.warm_up_epochs), optimizer)
    print(f"warm-up: {right(model, test):.3f} right")
    for stage, threshold in enumerate(s.stages):
        log = []
        losses = self_training(model, labelled, unlabelled, threshold, s.epochs_per_stage, log)
        samples += descend(losses, optimizer)
        share = torch.stack(log).mean().item()
        print(f"stage {stage}, threshold {threshold}: {right(model, test):.3f} right, {share:.2f} of the windows used")
        torch.save(model.state_dict(), f"stage{stage}.pt")
    rate = samples / (time.perf_counter() - began)
    print(f"{rate:.1f} samples/s")


if __name__ == "__main__":
    main()
