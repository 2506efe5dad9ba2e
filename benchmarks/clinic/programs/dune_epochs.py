# /// clinic
# expect = ["PD03.workers-restarted"]
# allow = ["PD08.allocator-churn", "PD03.too-few-workers"]
# stratum = "contra"
# domain = "images"
# sizes = {WIDTH = [30, 38]}
# severities = {PICTURES = [1500, 2500, 3500]}
# ///
"""Sorts pictures of dunes by their shape; the worker starts anew for each long epoch."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WIDTH = 34
PICTURES = 2500
BATCH = 32
SIDE = 32


class Dunes(Dataset):
    def __init__(self):
        self.seeds = torch.randint(0, 10_000, (PICTURES,))

    def __len__(self):
        return PICTURES

    def __getitem__(self, index):
        seed = int(self.seeds[index])
        slope = torch.linspace(0, 1 + seed % 5, SIDE)
        return torch.sin(slope[:, None] + slope[None] * (1 + seed % 3))[None], seed % 5


def main():
    torch.manual_seed(16)
    loader = DataLoader(
        Dunes(),
        BATCH,
        shuffle=True,
        num_workers=1,
        persistent_workers=True,  # well
    )
    model = nn.Sequential(
        nn.Conv2d(1, WIDTH, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(WIDTH, WIDTH, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(16 * WIDTH, 5),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    seen = 0
    for epoch in range(3):
        for number, (pictures, shapes) in enumerate(loader):
            if epoch == 0 and number == 5:
                began, seen = time.perf_counter(), 0
            loss = nn.functional.cross_entropy(model(pictures), shapes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(shapes)
        print(f"epoch {epoch}: {loss.item():.4f}")
    print(f"{seen / (time.perf_counter() - began):.1f} pictures/s")


if __name__ == "__main__":
    main()
