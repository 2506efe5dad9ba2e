# /// clinic
# expect = ["PD10.element-loop"]
# allow = ["PD08.allocator-churn"]
# stratum = "twins"
# domain = "images"
# sizes = {BATCH = [40, 56]}
# severities = {WIDTH = [20, 8, 4]}
# ///
"""Finds the one table on a scanned page: a box and how sure the network is."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH = 48
WIDTH = 8
PAGES = 18 * BATCH
EPOCHS = 10


def scans(count):
    pages = torch.rand(count, 1, 40, 40) * 0.2
    corners = torch.randint(0, 20, (count, 2))
    sides = torch.randint(8, 20, (count, 2))
    for page, (x, y), (w, h) in zip(pages, corners.tolist(), sides.tolist(), strict=True):
        page[:, y : y + h, x : x + w] += 0.6
    return pages, torch.cat([corners, corners + sides], dim=1) / 40


def overlap(guess, truth):
    top_left = torch.maximum(guess[..., :2], truth[..., :2])
    bottom_right = torch.minimum(guess[..., 2:], truth[..., 2:])
    inner = (bottom_right - top_left).clamp(min=0).prod(-1)
    areas = (guess[..., 2:] - guess[..., :2]).prod(-1) + (truth[..., 2:] - truth[..., :2]).prod(-1)
    return inner / (areas - inner).clamp(min=1e-6)


def box_loss(guess, truth):
    total = 0.0  # sick
    for i in range(len(guess)):  # sick here
        total = total + (1 - overlap(guess[i], truth[i])) + nn.functional.l1_loss(guess[i], truth[i])  # sick here
    return total / len(guess)  # sick
    return (1 - overlap(guess, truth)).mean() + nn.functional.l1_loss(guess, truth)  # well


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, WIDTH, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(WIDTH, 2 * WIDTH, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(2 * WIDTH, 2 * WIDTH, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
        )
        self.centre = nn.Linear(32 * WIDTH, 2)
        self.size = nn.Linear(32 * WIDTH, 2)

    def forward(self, pages):
        features = self.features(pages)
        centre, size = self.centre(features).sigmoid(), self.size(features).sigmoid()
        return torch.cat([centre - size / 2, centre + size / 2], dim=1)


if __name__ == "__main__":
    torch.manual_seed(3)
    loader = DataLoader(TensorDataset(*scans(PAGES)), BATCH, shuffle=True)
    detector = Detector()
    optimizer = torch.optim.SGD(detector.parameters(), lr=0.02)
    for epoch in range(EPOCHS):
        if epoch == 1:
            start = time.perf_counter()
        for pages, boxes in loader:
            loss = box_loss(detector(pages), boxes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print("epoch", epoch, "loss", round(loss.item(), 4))
    print(f"{(EPOCHS - 1) * PAGES / (time.perf_counter() - start):.1f} samples/s")
