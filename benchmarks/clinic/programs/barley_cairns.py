# /// clinic
# expect = ["PD10.python-between-steps"]
# stratum = "twins"
# domain = "hums of machines"
# ///
"""Recognise the work of a harvester from its vibration sensors, with longer and longer looks at the signal.

The curriculum has three stages.  Each cuts the recordings into windows of its own length and goes on with
the network of the stage before.
"""

import time

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

CHANNELS = 6
KINDS = 5
RECORDINGS = 40
SAMPLES = 6000
BATCH = 64
# length of a window, distance between windows, epochs
STAGES = [(32, 64, 3), (64, 64, 3), (128, 64, 7)]


def make_recordings(generator):
    """Recordings of one kind of work each: a few hums of a kind under much noise."""
    clock = np.arange(SAMPLES, dtype=np.float32)
    pitches = np.linspace(0.05, 0.6, KINDS * 2).reshape(2, KINDS)
    recordings, kinds = [], []
    for number in range(RECORDINGS):
        kind = number % KINDS
        loudness = generator.uniform(0.4, 1.0, (2, CHANNELS, 1))
        phase = generator.uniform(0, 2 * np.pi, (2, CHANNELS, 1))
        drift = 1 + 0.05 * generator.standard_normal()
        hums = loudness * np.sin(pitches[:, kind, None, None] * drift * clock + phase)
        noise = 1.5 * generator.standard_normal((CHANNELS, SAMPLES))
        recordings.append((hums.sum(0) + noise).astype(np.float32))
        kinds.append(kind)
    return recordings, kinds


def cut(recordings, kinds, length, distance):
    """All windows of a length, each with its channels brought to mean 0 and deviation 1."""
    windows = np.empty((0, CHANNELS, length), dtype=np.float32)  # sick
    windows = []  # well
    labels = []
    for recording, kind in zip(recordings, kinds):
        for start in range(0, SAMPLES - length + 1, distance):
            piece = recording[:, start : start + length]
            windows = np.append(windows, piece[None], axis=0)  # sick here
            windows.append(piece)  # well
            labels.append(kind)
    windows = np.stack(windows)  # well
    windows -= windows.mean(axis=2, keepdims=True)
    windows /= windows.std(axis=2, keepdims=True) + 1e-6
    return torch.from_numpy(windows), torch.tensor(labels)


class Listener(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(CHANNELS, width, 7, padding=3),
            nn.BatchNorm1d(width),
            nn.ReLU(inplace=True),
            nn.Conv1d(width, width, 5, stride=2, padding=2),
            nn.BatchNorm1d(width),
            nn.ReLU(inplace=True),
            nn.Conv1d(width, 2 * width, 5, stride=2, padding=2),
            nn.BatchNorm1d(2 * width),
            nn.ReLU(inplace=True),
        )
        self.head = nn.Linear(2 * width, KINDS)

    def forward(self, windows):
        return self.head(self.layers(windows).mean(2))


def train_stage(model, windows, labels, epochs):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    model.train()
    seen = 0
    for _ in range(epochs):
        for chosen in torch.randperm(len(windows)).split(BATCH):
            loss = F.cross_entropy(model(windows[chosen]), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(chosen)
    return seen


@torch.no_grad()
def accuracy(model, windows, labels):
    model.eval()
    right = sum((model(x).argmax(1) == y).sum().item() for x, y in zip(windows.split(512), labels.split(512)))
    return right / len(windows)


def main():
    torch.manual_seed(14)
    generator = np.random.default_rng(14)
    recordings, kinds = make_recordings(generator)
    known, held_out = slice(0, -KINDS), slice(-KINDS, None)

    model = Listener()
    seen = 0
    started = None
    for length, distance, epochs in STAGES:
        windows, labels = cut(recordings[known], kinds[known], length, distance)
        started = started or time.perf_counter()
        seen += train_stage(model, windows, labels, epochs)
    elapsed = time.perf_counter() - started

    windows, labels = cut(recordings[held_out], kinds[held_out], *STAGES[-1][:2])
    print(f"accuracy on other recordings: {accuracy(model, windows, labels):.3f}")
    print(f"{seen / elapsed:.1f} samples/s")


if __name__ == "__main__":
    main()
