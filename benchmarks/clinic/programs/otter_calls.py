# /// clinic
# stratum = "decoys"
# resembles = ["PD15"]
# domain = "audio"
# allow = ["PD03", "PD05", "PD10"]
# sizes = {SAMPLES = [600, 1000], WIDTH = [300, 400]}
# ///
"""Calls of otters. A data set that keeps what it has filtered: its cache is full after the first epoch. Later epochs
have longer calls first and shorter ones last."""

import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SAMPLES = 800
WIDTH = 350
CALLS = 1600
EPOCHS = 12
BATCH = 32


class Calls(Dataset):
    def __init__(self):
        self.calls = np.random.default_rng(3).normal(size=(CALLS, SAMPLES)).astype(np.float32)
        self.filtered = {}

    def __len__(self):
        return CALLS

    def __getitem__(self, index):
        if index not in self.filtered:
            self.filtered[index] = np.convolve(self.calls[index], np.ones(9, np.float32) / 9, "same")
        call = self.filtered[index].copy()
        call[SAMPLES - index % CALLS * SAMPLES // (2 * CALLS) :] = 0
        return call, index % 4


def main():
    torch.manual_seed(13)
    loader = DataLoader(Calls(), batch_size=BATCH)
    net = nn.Sequential(nn.Linear(SAMPLES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
    for epoch in range(EPOCHS):
        if epoch == 1:
            began = time.perf_counter()
        for calls, kind in loader:
            loss = nn.functional.cross_entropy(net(calls), kind)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"loss {loss.item():.4f}")
    print(f"{(EPOCHS - 1) * CALLS / (time.perf_counter() - began):.1f} samples/s")


if __name__ == "__main__":
    main()
