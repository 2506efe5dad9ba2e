# /// clinic
# expect = ["PD03.transform"]
# stratum = "twins"
# domain = "forest inventory from airborne laser scans"
# ///
"""Stand type of forest plots from airborne laser scans.

Every plot is a cloud of some hundred thousand returns (x, y, height above ground). A small PointNet sees a random subset of
the returns of a plot, turned about the vertical axis, and says which of six stand types it is.
"""

import argparse
import math
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


STAND_TYPES = ["spruce", "pine", "beech", "oak", "birch", "mixed"]


def scan_plot(stand_type, rng):
    """A synthetic plot of 40 m x 40 m: stems at random, crowns whose shape depends on the stand type."""
    returns = int(rng.integers(150_000, 220_000))
    stems = 30 + 12 * stand_type
    centres = rng.uniform(-20, 20, (stems, 2)).astype(np.float32)
    heights = rng.normal(16 + 2 * stand_type, 2, stems).astype(np.float32)
    tree = rng.integers(0, stems, returns, dtype=np.int32)
    level = rng.random(returns, dtype=np.float32) ** np.float32(0.5 + 0.2 * stand_type)
    spread = (1.2 + 0.3 * stand_type) * (1.05 - level)
    cloud = np.empty((returns, 3), dtype=np.float32)
    cloud[:, :2] = centres[tree] + spread[:, None] * rng.standard_normal((returns, 2), dtype=np.float32)
    cloud[:, 2] = heights[tree] * level
    return cloud


class ForestPlots(Dataset):
    def __init__(self, plots, labels, points, draws_per_plot, seed):
        self.plots = plots
        self.labels = labels
        self.points = points
        self.draws_per_plot = draws_per_plot
        self.rng = np.random.default_rng(seed)
        np.random.seed(seed)

    def __len__(self):
        return len(self.plots) * self.draws_per_plot

    def __getitem__(self, index):
        index %= len(self.plots)
        cloud = self.plots[index]
        chosen = np.random.choice(len(cloud), self.points, replace=False)  # sick here
        chosen = self.rng.choice(len(cloud), self.points, replace=False)  # well
        sample = cloud[chosen]
        angle = self.rng.uniform(0, 2 * math.pi)
        turn = np.array(
            [[math.cos(angle), -math.sin(angle), 0], [math.sin(angle), math.cos(angle), 0], [0, 0, 1]], dtype=np.float32
        )
        return torch.from_numpy((sample @ turn.T) / 20.0), self.labels[index]


class PointNet(nn.Module):
    def __init__(self, classes, width=48):
        super().__init__()
        self.per_point = nn.Sequential(
            nn.Linear(3, width),
            nn.ReLU(),
            nn.Linear(width, 2 * width),
            nn.ReLU(),
            nn.Linear(2 * width, 4 * width),
        )
        self.head = nn.Sequential(
            nn.Linear(4 * width, 2 * width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(2 * width, classes)
        )

    def forward(self, points):
        return self.head(self.per_point(points).amax(dim=1))


def train_epoch(model, loader, optimizer, epoch):
    model.train()
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    begun = time.time()
    right = torch.zeros((), dtype=torch.long)
    seen, total = 0, torch.zeros(())
    for batch, (points, labels) in enumerate(loader):
        optimizer.zero_grad(set_to_none=True)
        logits = model(points)
        loss = criterion(logits, labels)
        loss.backward()
        optimizer.step()
        total += loss.detach()
        right += (logits.detach().argmax(dim=1) == labels).sum()
        seen += len(labels)
        if (batch + 1) % 20 == 0:
            print(f"epoch {epoch} batch {batch + 1}/{len(loader)} loss {total.item() / (batch + 1):.3f}")
    print(f"epoch {epoch}: accuracy {right.item() / seen:.3f}, {seen / (time.time() - begun):.0f} plots/s")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--plots", type=int, default=60)
    parser.add_argument("--points", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()

    torch.manual_seed(11)
    rng = np.random.default_rng(11)
    labels = [i % len(STAND_TYPES) for i in range(args.plots)]
    plots = [scan_plot(label, rng) for label in labels]
    print(f"{len(plots)} plots, {sum(map(len, plots)) / 1e6:.1f} million returns")

    data = ForestPlots(plots, labels, args.points, draws_per_plot=12, seed=12)
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = PointNet(len(STAND_TYPES))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4)
    for epoch in range(args.epochs):
        train_epoch(model, loader, optimizer, epoch)


if __name__ == "__main__":
    main()
