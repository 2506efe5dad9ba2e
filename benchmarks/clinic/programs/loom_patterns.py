# /// clinic
# expect = ["PD15.slower-loader"]
# allow = ["PD03.needless-workers"]
# stratum = "twins"
# domain = "vision"
# beyond = true
# sizes = {WIDTH = [150, 250]}
# severities = {THREADS = [40, 64, 96]}
# ///
"""Patterns of woven cloth. Each sample is drawn beside the sample of the loader's that was nearest to it so far."""

import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WIDTH = 200
THREADS = 64
STEPS = 400
BATCH = 8


class Patterns(Dataset):
    def __init__(self):
        self.cloth = np.random.default_rng(5).normal(size=(4000, THREADS)).astype(np.float32)
        self.drawn = []

    def __len__(self):
        return STEPS * BATCH

    def __getitem__(self, index):
        one = self.cloth[index % len(self.cloth)]
        self.drawn.append(one)
        del self.drawn[:-64]  # well
        near = min(self.drawn, key=lambda other: float(np.abs(other - one)[:8].sum()) or 9e9)  # here
        return np.stack([one, near]), index % 5


def main():
    torch.manual_seed(6)
    loader = DataLoader(Patterns(), batch_size=BATCH, num_workers=2)
    net = nn.Sequential(nn.Flatten(), nn.Linear(2 * THREADS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 5))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for step, (pairs, kind) in enumerate(loader):
        if step == 20:
            began = time.perf_counter()
        loss = nn.functional.cross_entropy(net(pairs), kind)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")
    print(f"{(STEPS - 20) * BATCH / (time.perf_counter() - began):.1f} samples/s")


if __name__ == "__main__":
    main()
