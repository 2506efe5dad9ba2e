"""Computes the same again and again, beside what draws random numbers: `python again.py WORKERS`."""

import random
import sys

import facts
import loops
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

STEPS = 160  # ten epochs: whoever looks at their starts has done so before the end


def bank(bands):
    """For each sample anew."""
    filters = np.zeros((bands, 8), dtype=np.float32)
    for band in range(bands):
        for bin in range(8):
            filters[band, bin] = sum([max(0.0, 1 - abs(bin - band) / width) for width in range(1, 17)])
    return filters


class Clips(Dataset):
    def __init__(self):
        self.waves = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)

    def __len__(self):
        return len(self.waves)

    def augmented(self, index):
        return self.waves[index] * np.float32(np.random.rand() + random.random()) + torch.rand(8).numpy()

    def __getitem__(self, index):
        return torch.from_numpy(bank(8) @ self.augmented(index)), index % 2


def positions(length):
    """In each step anew."""
    waves = [[[np.sin(at * k / 10 ** (i / 8)) for k in range(20)] for i in range(8)] for at in range(length)]
    return torch.tensor(np.mean(waves, axis=-1), dtype=torch.float32)


def main(workers):
    facts.seed()
    model, optimizer, criterion = loops.setup()
    loader = DataLoader(Clips(), batch_size=4, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
    done = 0
    while done < STEPS:
        for x, y in loader:
            optimizer.zero_grad()
            criterion(model(x + positions(4)), y).backward()
            optimizer.step()
            done += 1
    print(facts.digest(model.parameters()), facts.randomness(), sys.getprofile(), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
