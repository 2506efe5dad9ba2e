"""A small image classifier as people write it, and slower than it needs to be in several ways.

    perfdoctor check sample_configs/demo_train.py

It makes its own pictures, so there is nothing to download. Left alone it trains for some minutes.
"""

import argparse
import gc

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLASSES = 10


class Pictures(Dataset):
    """Noisy stripes; the class is their direction."""

    def __init__(self, count, size=32, seed=0):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, CLASSES, count)
        self.noise = rng.normal(0, 1.0, (count, size, size))
        self.grid = np.mgrid[0:size, 0:size] / size

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        angle = np.pi * self.labels[index] / CLASSES
        across = self.grid[0] * np.sin(angle) + self.grid[1] * np.cos(angle)
        picture = np.sin(20 * across) + self.noise[index]
        return augment(picture), self.labels[index]


def augment(picture):
    """Blur a little, so that the network does not learn the noise."""
    padded = np.pad(picture, 2, mode="reflect")
    blurred = np.zeros_like(picture)
    for row in range(picture.shape[0]):
        for column in range(0, picture.shape[1], 2):
            blurred[row, column : column + 2] = padded[row : row + 5, column : column + 6].mean()
    return (0.8 * picture + 0.2 * blurred)[None]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 24, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(24, 48, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classify = nn.Sequential(nn.Flatten(), nn.Linear(48 * 8 * 8, 128), nn.ReLU(), nn.Linear(128, CLASSES))

    def forward(self, pictures):
        return self.classify(self.features(pictures))


def train(epochs, batch_size):
    torch.manual_seed(0)
    loader = DataLoader(Pictures(4096), batch_size=batch_size, shuffle=True)
    model = Net().double()  # "expected scalar type Double but found Float"
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        total = 0.0
        for step, (pictures, labels) in enumerate(loader):
            optimizer.zero_grad()
            loss = criterion(model(pictures), labels)
            loss.backward()
            optimizer.step()
            total += loss.item()
            if step % 4 == 0:
                gc.collect()  # "to keep memory low"
        print(f"epoch {epoch + 1}: loss {total / len(loader):.3f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=16)
    arguments = parser.parse_args()
    train(arguments.epochs, arguments.batch_size)
