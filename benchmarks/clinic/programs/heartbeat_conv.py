# /// clinic
# expect = ["PD07.float64"]
# stratum = "twins"
# domain = "time series"
# sizes = {LEADS = [3, 12], LENGTH = [200, 260]}
# severities = {CHANNELS = [12, 24, 64]}
# ///
"""Tells arrhythmias apart in electrocardiograms with one-dimensional convolutions."""

import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

LEADS = 6
LENGTH = 240
CHANNELS = 24


@dataclass
class Options:
    epochs: int = 5
    batch: int = 32
    rate: float = 1e-3
    steps_per_epoch: int = 40


def recordings(count):
    generator = np.random.default_rng(0)
    time_ = np.linspace(0, 10, LENGTH)
    pulse = generator.uniform(5, 9, (count, 1, 1))
    signal = np.sin(pulse * time_ + generator.uniform(0, 3, (count, LEADS, 1)))
    return signal + 0.2 * generator.normal(size=signal.shape), (pulse[:, 0, 0] > 7).astype(np.int64)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv1d(LEADS, CHANNELS, 7, padding=3)
        self.blocks = nn.ModuleList([nn.Conv1d(CHANNELS, CHANNELS, 5, padding=2) for _ in range(3)])
        self.head = nn.Linear(CHANNELS, 2)

    def forward(self, signal):
        hidden = torch.relu(self.stem(signal))
        for block in self.blocks:
            hidden = hidden + torch.relu(block(hidden))
        return self.head(hidden.mean(dim=2))


def main(options):
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)  # sick here
    signal, label = recordings(options.steps_per_epoch * options.batch)
    signal = torch.tensor(signal, dtype=torch.get_default_dtype())
    loader = DataLoader(TensorDataset(signal, torch.from_numpy(label)), options.batch, shuffle=True)
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=options.rate)
    for epoch in range(options.epochs):
        if epoch == 1:
            began = time.perf_counter()
        for signals, labels in loader:
            loss = nn.functional.cross_entropy(model(signals), labels)  # here
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")
    count = (options.epochs - 1) * options.steps_per_epoch * options.batch
    print(f"{count / (time.perf_counter() - began):.1f} recordings/s")


main(Options())
