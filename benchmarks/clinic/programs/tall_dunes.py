# /// clinic
# expect = ["PD16.anomaly-detection"]
# stratum = "twins"
# domain = "motion sensors"
# ///
"""Tells what a sand buggy is doing from windows of its motion sensors."""

import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CHANNELS = 6
WINDOW = 128
MOVES = 5
WINDOWS = 6144
BATCH = 128
EPOCHS = 6

torch.manual_seed(0)
torch.autograd.set_detect_anomaly(True)  # sick here


def record(count, seed=5):
    """Windows of six channels; each kind of move has its own tones and drift."""
    rng = np.random.default_rng(seed)
    tones = rng.uniform(1.0, 9.0, size=(MOVES, CHANNELS, 1))
    drift = rng.normal(0, 0.3, size=(MOVES, CHANNELS, 1))
    labels = rng.integers(MOVES, size=count)
    t = np.linspace(0, 1, WINDOW)
    phase = rng.uniform(0, 2 * np.pi, size=(count, CHANNELS, 1))
    signal = np.sin(2 * np.pi * tones[labels] * t + phase) + drift[labels] * t
    signal += rng.normal(0, 0.9, size=signal.shape)
    return torch.from_numpy(signal.astype(np.float32)), torch.from_numpy(labels)


class MoveNet(nn.Module):
    """Three strided convolutions, then a recurrent layer over what is left."""

    def __init__(self, width=96):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(CHANNELS, 48, 7, stride=2, padding=3),
            nn.BatchNorm1d(48),
            nn.ReLU(),
            nn.Conv1d(48, width, 5, stride=2, padding=2),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2),
            nn.BatchNorm1d(width),
            nn.ReLU(),
        )
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, MOVES)

    def forward(self, x):
        steps = self.conv(x).transpose(1, 2)
        _, last = self.rnn(steps)
        return self.head(last[-1])


def accuracy(model, x, y):
    model.eval()
    with torch.no_grad():
        right = sum((model(a).argmax(1) == b).sum().item() for a, b in zip(x.split(256), y.split(256)))
    model.train()
    return right / len(y)


x, y = record(WINDOWS + 512)
train_set = TensorDataset(x[:WINDOWS], y[:WINDOWS])
loader = DataLoader(train_set, batch_size=BATCH, shuffle=True)

model = MoveNet()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loss_fn = nn.CrossEntropyLoss()

seen = 0
began = time.perf_counter()
for epoch in range(EPOCHS):
    total = torch.zeros(())
    for signals, moves in loader:
        loss = loss_fn(model(signals), moves)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
        seen += len(moves)
    print(f"epoch {epoch}: loss {total.item() / len(loader):.3f}")
elapsed = time.perf_counter() - began

print(f"accuracy on fresh windows: {accuracy(model, x[WINDOWS:], y[WINDOWS:]):.3f}")
print(f"{seen / elapsed:.1f} samples/s")
