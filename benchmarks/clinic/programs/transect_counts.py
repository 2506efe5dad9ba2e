# /// clinic
# expect = ["PD03.asked-of-a-process"]
# stratum = "twins"
# domain = "butterfly counts along transects"
# allow = ["PD03.per-sample-indexing"]
# ///
"""Butterflies along transects: how many of each of 12 species a walk of 1 km will count, from weather and habitat.

Records of all walks are kept as rows, so that a season's data can be added while the model is refitted.
"""

import argparse
import time
from multiprocessing import Manager

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SPECIES = 12
WEATHER = 36
HABITAT = 60


class Walks(Dataset):
    """One row for each walk: weather of the day, habitat of the sections, counts."""

    def __init__(self, rows):
        self.rows = Manager().list(rows)  # sick
        self.rows = list(rows)  # well

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]  # here
        return torch.from_numpy(row[:-SPECIES]), torch.from_numpy(row[-SPECIES:])


class Counts(nn.Module):
    """The logarithm of the expected counts."""

    def __init__(self, width):
        super().__init__()
        self.weather = nn.Sequential(nn.Linear(WEATHER, width), nn.SiLU())
        self.habitat = nn.Sequential(nn.Linear(HABITAT, width), nn.SiLU())
        self.body = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.rate = nn.Linear(width, SPECIES)

    def forward(self, x):
        weather, habitat = x.split((WEATHER, HABITAT), dim=1)
        return self.rate(self.body(torch.cat([self.weather(weather), self.habitat(habitat)], dim=1)))


def season(walks, seed):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(walks, WEATHER + HABITAT)).astype(np.float32)
    taste = rng.normal(size=(WEATHER + HABITAT, SPECIES)) / np.sqrt(WEATHER + HABITAT)
    counts = rng.poisson(np.exp(features @ taste)).astype(np.float32)
    return np.concatenate([features, counts], axis=1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--walks", type=int, default=16000)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--width", type=int, default=384)
    arguments = parser.parse_args()
    torch.manual_seed(4)
    loader = DataLoader(Walks(season(arguments.walks, 1)), batch_size=arguments.batch, shuffle=True, drop_last=True)
    model = Counts(arguments.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    likelihood = nn.PoissonNLLLoss()
    began, seen = time.perf_counter(), 0
    for epoch in range(arguments.epochs):
        total = torch.zeros(())
        for x, counts in loader:
            loss = likelihood(model(x), counts)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
            seen += len(x)
        print(f"epoch {epoch}: {total.item() / len(loader):.4f}")
    print(f"{seen / (time.perf_counter() - began):.1f} walks/s")


if __name__ == "__main__":
    main()
