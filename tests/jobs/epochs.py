"""Makes its features anew for every epoch, beside an order that it draws: `python epochs.py WORKERS STEPS`; without a
loader where `WORKERS` is -1."""

import sys
import time

import facts
import loops
import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 16
PAUSE_S = 0.004
"""In each step: beside it the pauses of a busy machine are short."""


def features(waves):
    """In each epoch anew."""
    found = np.abs(np.stack([np.fft.fft(np.roll(waves, shift, axis=1)) for shift in range(24)])).mean(0)
    return torch.from_numpy(found[:, :8].astype(np.float32))


def order(count, steps):
    return torch.randperm(count)[: steps * 4]


def batches(waves, targets, workers, steps):
    """Those of one epoch."""
    chosen = order(len(waves), steps)
    made = features(waves)[chosen], targets[chosen]
    if workers < 0:
        return zip(made[0].split(4), made[1].split(4))
    return DataLoader(TensorDataset(*made), batch_size=4, num_workers=workers)


def main(workers, steps):
    facts.seed()
    model, optimizer, criterion = loops.setup()
    waves, targets = np.random.default_rng(0).normal(size=(512, 512)), torch.arange(512) % 2
    for _ in range(EPOCHS):
        for x, y in batches(waves, targets, workers, steps):
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
            time.sleep(PAUSE_S)
    print(facts.digest(model.parameters()), facts.randomness(), sys.getprofile(), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
