# /// clinic
# expect = ["PD12.started-each-step"]
# stratum = "twins"
# domain = "seismology"
# sizes = {BATCH = [14, 18], HIDDEN = [60, 68]}
# ///
"""Trains a P-wave arrival picker on filtered three-component seismograms."""

import multiprocessing as mp
import time

import numpy as np
import torch
from scipy import signal
from torch import nn

BATCH = 16
HIDDEN = 64
SAMPLES = 2400
RATE = 100.0
STEPS = 120
WARMUP = 5

fork = mp.get_context("fork")
SOS = signal.butter(4, [1.0, 20.0], btype="bandpass", fs=RATE, output="sos")


def synthesise(seed):
    """A noisy record with a P onset; returns (3, SAMPLES) and the onset's sample."""
    rng = np.random.default_rng(seed)
    onset = int(rng.integers(600, 1800))
    noise = rng.standard_normal((3, SAMPLES)).cumsum(axis=1) * 0.05
    noise += rng.standard_normal((3, SAMPLES)) * 0.5
    t = np.arange(SAMPLES - onset) / RATE
    wavelet = np.exp(-t / rng.uniform(1, 4)) * np.sin(2 * np.pi * rng.uniform(3, 12) * t)
    trace = noise
    trace[:, onset:] += rng.uniform(1, 6) * np.array([[1.0], [0.4], [0.3]]) * wavelet
    return trace, onset


def prepare(seed):
    """Filter, taper, whiten, and add the STA/LTA curve as a fourth channel."""
    trace, onset = synthesise(seed)
    trace = signal.detrend(trace, axis=1) * signal.windows.tukey(SAMPLES, 0.05)
    trace = signal.sosfiltfilt(SOS, trace, axis=1)
    trace /= trace.std(axis=1, keepdims=True) + 1e-9
    power = np.square(trace).sum(axis=0)
    total = np.concatenate([[0.0], power.cumsum()])
    sta, lta = 50, 600
    ratio = np.zeros(SAMPLES)
    ends = np.arange(lta, SAMPLES)
    ratio[ends] = ((total[ends] - total[ends - sta]) / sta) / ((total[ends] - total[ends - lta]) / lta + 1e-9)
    features = np.concatenate([trace, np.log1p(ratio)[None]]).astype(np.float32)
    # soft label: a Gaussian of 0.2 s about the onset, at a quarter of the rate
    grid = np.arange(0, SAMPLES, 4)
    label = np.exp(-0.5 * np.square((grid - onset) / 20.0)).astype(np.float32)
    return features, label


class Picker(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv1d(4, hidden // 2, 7, stride=2, padding=3),
            nn.ReLU(),
            nn.Conv1d(hidden // 2, hidden, 7, stride=2, padding=3),
            nn.ReLU(),
        )
        self.trunk = nn.ModuleList(nn.Conv1d(hidden, hidden, 5, padding=2 * d, dilation=d) for d in (1, 2, 4, 8))
        self.head = nn.Conv1d(hidden, 1, 1)

    def forward(self, x):
        h = self.down(x)
        for conv in self.trunk:
            h = h + torch.relu(conv(h))
        return self.head(h).squeeze(1)


def load_batch(seeds):  # sick
    # filtering is pure NumPy/SciPy, so spread it over both cores
    with fork.Pool(2) as pool:  # sick here
        rows = pool.map(prepare, seeds, chunksize=len(seeds) // 2)  # sick


def load_batch(pool, seeds):  # well
    # filtering is pure NumPy/SciPy, so spread it over both cores
    rows = pool.map(prepare, seeds, chunksize=len(seeds) // 2)  # well
    features, labels = zip(*rows)
    return torch.from_numpy(np.stack(features)), torch.from_numpy(np.stack(labels))


def pick_error(logits, labels):
    return (logits.argmax(1) - labels.argmax(1)).abs().float().median() * 4 / RATE


def train():
    torch.manual_seed(2)
    rng = np.random.default_rng(8)
    pool = fork.Pool(2)  # well
    model = Picker(HIDDEN)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    weight = torch.tensor(15.0)
    for step in range(STEPS + WARMUP):
        if step == WARMUP:
            start = time.perf_counter()
        seeds = rng.integers(0, 2**31, BATCH).tolist()
        x, y = load_batch(seeds)  # sick here
        x, y = load_batch(pool, seeds)  # well
        logits = model(x)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, y, pos_weight=weight)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"step {step:3d}  loss {loss.item():.4f}  median error {pick_error(logits, y).item():.2f} s")
    print(f"{STEPS / (time.perf_counter() - start):.2f} steps/s")
    pool.terminate()  # well


if __name__ == "__main__":
    train()
