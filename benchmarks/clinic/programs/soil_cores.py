# /// clinic
# expect = ["PD07.float64"]
# allow = ["PD03", "PD10", "PD04"]
# stratum = "contra"
# domain = "tabular"
# sizes = {LAYERS = [30, 50]}
# severities = {UNITS = [8, 16, 32]}
# ///
"""What grows on a soil, from cores in text files: most of the time goes to reading them."""

import io
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LAYERS = 40
UNITS = 16
BATCH = 32
SECONDS = 5.0


class Cores(Dataset):
    def __init__(self, count):
        generator = np.random.default_rng(2)
        cores = generator.normal(size=(count, LAYERS, 6))
        self.plants = torch.from_numpy((cores[:, 0, 0] > 0).astype(np.int64))
        self.files = ["\n".join(" ".join(f"{value:.4f}" for value in row) for row in core) for core in cores]

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return torch.from_numpy(np.loadtxt(io.StringIO(self.files[index]))), self.plants[index]


def main():
    torch.manual_seed(2)
    loader = DataLoader(Cores(1200), BATCH, shuffle=True, drop_last=True)
    model = nn.Sequential(nn.Flatten(), nn.Linear(LAYERS * 6, UNITS), nn.ReLU(), nn.Linear(UNITS, 2))
    dtype = torch.float64  # sick
    dtype = torch.float32  # well
    model = model.to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    steps, began = 0, None
    while began is None or time.perf_counter() - began < SECONDS:
        for cores, plants in loader:
            loss = nn.functional.cross_entropy(model(cores.to(dtype)), plants)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
            if steps == 10:
                began = time.perf_counter()
            if began is not None and time.perf_counter() - began > SECONDS:
                break
    print(f"loss {loss.item():.4f}")
    print(f"{(steps - 10) * BATCH / (time.perf_counter() - began):.1f} cores/s")


if __name__ == "__main__":
    main()
