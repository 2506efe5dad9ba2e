# /// clinic
# expect = ["PD03.workers-restarted"]
# allow = ["PD08.allocator-churn"]
# stratum = "twins"
# domain = "images"
# sizes = {WIDTH = [10, 14], SHOTS = [24, 32]}
# severities = {EPISODES = [24, 8, 3]}
# ///
"""Fine-tunes a small encoder in many short rounds over a handful of drawings."""

import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SHOTS = 28
WIDTH = 12
EPISODES = 8
TOTAL = 200


class Drawings(Dataset):
    def __init__(self, count):
        self.strokes = np.random.default_rng(5).random((count, 6, 2))
        self.grid = np.stack(np.meshgrid(np.linspace(0, 1, 32), np.linspace(0, 1, 32)), -1)

    def __len__(self):
        return len(self.strokes)

    def __getitem__(self, index):
        distance = ((self.grid[:, :, None] - self.strokes[index]) ** 2).sum(-1).min(-1)
        return torch.from_numpy(np.exp(-200 * distance).astype(np.float32))[None], index % 5


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, WIDTH, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(WIDTH, WIDTH, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(WIDTH, 2 * WIDTH, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
        )
        self.head = nn.Linear(2 * WIDTH * 16, 5)

    def forward(self, images):
        return self.head(self.body(images).flatten(1))


def one_round(model, loader, optimizer):
    for images, labels in loader:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss


if __name__ == "__main__":
    torch.manual_seed(0)
    drawings = Drawings(SHOTS * EPISODES)
    options = {"batch_size": SHOTS, "shuffle": True, "num_workers": 1}
    options["persistent_workers"] = True  # well
    loader = DataLoader(drawings, **options)  # here
    model = Encoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    rounds = TOTAL // EPISODES
    one_round(model, loader, optimizer)
    began = time.perf_counter()
    for number in range(rounds):
        loss = one_round(model, loader, optimizer)
        if number % max(1, rounds // 4) == 0:
            print(f"round {number}: {loss.item():.3f}")
    print(f"{rounds * len(drawings) / (time.perf_counter() - began):.1f} drawings/s")
