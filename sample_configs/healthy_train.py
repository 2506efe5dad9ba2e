"""A small image classifier with nothing to complain about: perfdoctor clears it.

    perfdoctor check sample_configs/healthy_train.py

It is demo_train.py put right: pictures are made as whole arrays and in float32, and nobody calls the collector.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 10


def pictures(count, size=32):
    """Noisy stripes; the class is their direction."""
    labels = torch.randint(CLASSES, (count,))
    angles = (torch.pi * labels / CLASSES).view(-1, 1, 1)
    rows, columns = torch.meshgrid(torch.linspace(0, 1, size), torch.linspace(0, 1, size), indexing="ij")
    stripes = torch.sin(20 * (rows * torch.sin(angles) + columns * torch.cos(angles)))
    return TensorDataset((stripes + 0.3 * torch.randn(count, size, size)).unsqueeze(1), labels)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classify = nn.Sequential(nn.Flatten(), nn.Linear(32 * 8 * 8, 128), nn.ReLU(), nn.Linear(128, CLASSES))

    def forward(self, batch):
        return self.classify(self.features(batch))


def train(epochs, batch_size):
    torch.manual_seed(0)
    loader = DataLoader(pictures(4096), batch_size=batch_size, shuffle=True)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        for batch, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(batch), labels)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: last loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=64)
    arguments = parser.parse_args()
    train(arguments.epochs, arguments.batch_size)
