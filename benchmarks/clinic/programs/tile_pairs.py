# /// clinic
# stratum = "decoys"
# domain = "images"
# sizes = {WIDTH = [14, 18], SIDE = [90, 100]}
# ///
"""Denoises large microscope tiles, two at a time."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WIDTH = 16
SIDE = 96
STEPS = 150


class Tiles(Dataset):
    def __init__(self):
        self.film = torch.rand(600, 600)

    def __len__(self):
        return 4000

    def __getitem__(self, index):
        top, left = (index * 37) % (600 - SIDE), (index * 91) % (600 - SIDE)
        clean = self.film[top : top + SIDE, left : left + SIDE]
        return (clean + 0.1 * torch.randn(SIDE, SIDE))[None], clean[None]


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.entry = nn.Conv2d(1, WIDTH, 3, padding=1)
        self.middle = nn.ModuleList([nn.Conv2d(WIDTH, WIDTH, 3, padding=1) for _ in range(4)])
        self.exit = nn.Conv2d(WIDTH, 1, 3, padding=1)

    def forward(self, noisy):
        hidden = self.entry(noisy)
        for layer in self.middle:
            hidden = hidden + layer(hidden).relu()
        return noisy - self.exit(hidden)


def main():
    torch.manual_seed(2)
    loader = DataLoader(Tiles(), batch_size=2, shuffle=True)
    model = Denoiser()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step, (noisy, clean) in enumerate(loader):
        if step == 10:
            began = time.perf_counter()
        if step == STEPS:
            break
        loss = nn.functional.l1_loss(model(noisy), clean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: {loss.item():.4f}")
    print(f"{2 * (STEPS - 10) / (time.perf_counter() - began):.2f} tiles/s")


main()
