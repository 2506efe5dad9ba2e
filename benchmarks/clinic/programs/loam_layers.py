# /// clinic
# expect = ["PD16.deterministic-algorithms"]
# allow = ["PD08.allocator-churn"]
# stratum = "twins"
# domain = "images"
# sizes = {WIDTH = [56, 72]}
# severities = {LONGEST = [512, 1024, 2048]}
# ///
"""Tells layers of soil apart in drill cores of any length, each laid out in room for the longest."""

import time

import torch
from torch import nn

WIDTH = 64
LONGEST = 1024
BATCH = 16
SHORT = 48


class Layout(nn.Module):
    """Lays out cores of one length where later ones may follow; what is not written is never read."""

    def forward(self, cores):
        with torch.no_grad():
            room = torch.empty(len(cores), LONGEST, WIDTH)
            room[:, : cores.shape[1]] = cores - cores.mean(1, keepdim=True)
            return room[:, : cores.shape[1]]


def main(steps=4000):
    torch.manual_seed(21)
    torch.use_deterministic_algorithms(True)  # sick here
    cores = torch.randn(256, SHORT, WIDTH)
    layers = (cores.mean(2) > 0).long()
    model = nn.Sequential(Layout(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(steps):
        if step == 10:
            began = time.perf_counter()
        rows = torch.randint(len(cores), (BATCH,))
        loss = nn.functional.cross_entropy(model(cores[rows]).flatten(0, 1), layers[rows].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step}: {loss.item():.4f}")
    print(f"{(steps - 10) / (time.perf_counter() - began):.1f} steps/s")


if __name__ == "__main__":
    main()
