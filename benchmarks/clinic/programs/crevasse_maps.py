# /// clinic
# expect = ["PD10.picked-by-product"]
# stratum = "twins"
# domain = "crevasses on glaciers, from the air"
# ///
"""Maps of a glacier's surface from aerial photographs: each pixel is bare ice, snow, debris, water, or one of several
kinds of crevasse. A small network with skips, trained on tiles."""

import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Settings:
    tiles: int = 320
    size: int = 96
    kinds: int = 24
    batch: int = 8
    epochs: int = 10
    width: int = 12
    seed: int = 8


class Mapper(nn.Module):
    def __init__(self, width: int, kinds: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(4, width, 3, padding=1), nn.ReLU())
        self.down = nn.Sequential(nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.ReLU())
        self.deep = nn.Sequential(nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.ReLU())
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.kinds = nn.Conv2d(2 * width, kinds, 1)

    def forward(self, x):
        fine = self.first(x)
        coarse = self.deep(self.down(fine))
        return self.kinds(torch.cat([fine, F.relu(self.up(coarse))], dim=1))


def glacier(settings: Settings):
    generator = torch.Generator().manual_seed(settings.seed)
    rough = torch.randn(settings.tiles, 3, 12, 12, generator=generator)
    height = F.interpolate(rough, size=settings.size, mode="bilinear")
    slope = height.diff(dim=2, append=height[:, :, -1:]).abs().sum(1, keepdim=True)
    index = (height.sum(1) * 4 + 12).round().long().clamp(0, settings.kinds - 1)
    return torch.cat([height, slope], dim=1) + 0.1 * torch.randn(settings.tiles, 4, 1, 1, generator=generator), index


def map_loss(scores, surface):
    wanted = F.one_hot(surface, scores.shape[1]).permute(0, 3, 1, 2).float()  # sick here
    return F.cross_entropy(scores, wanted)  # sick here
    return F.cross_entropy(scores, surface)  # well


def train(settings: Settings) -> float:
    torch.manual_seed(settings.seed)
    photographs, surfaces = glacier(settings)
    model = Mapper(settings.width, settings.kinds)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    began, seen = time.perf_counter(), 0
    for epoch in range(settings.epochs):
        total = 0.0
        for rows in torch.randperm(settings.tiles).split(settings.batch):
            loss = map_loss(model(photographs[rows]), surfaces[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
            seen += len(rows)
        print(f"epoch {epoch}: loss {total.item() * settings.batch / settings.tiles:.4f}")
    return seen / (time.perf_counter() - began)


if __name__ == "__main__":
    print(f"{train(Settings()):.1f} tiles/s")
