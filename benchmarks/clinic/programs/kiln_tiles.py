# /// clinic
# expect = ["PD17.gradients-without-optimizer", "PD08.unused-gradients"]
# stratum = "twins"
# domain = "flaws of tiles"
# ///
"""Tells flaws of glazed tiles apart, with a network that has first learned glaze textures.

A small convolutional network learns ten glaze textures. Its classifier is then replaced and it is
fine-tuned on few photographs of four kinds of flaw. `RATES` gives a learning rate to each part of
the network; a part with rate 0 keeps what it has learned.
"""

import math
import time

import torch
from torch import nn
from torch.nn import functional as F

SIZE, TEXTURES, FLAWS = 32, 10, 4
BATCH, WARM_UP_STEPS, STEPS = 64, 60, 420
RATES = {"stem": 0.0, "body": 0.0, "neck": 2e-4, "head": 1e-3}


def glaze(kinds, generator):
    """Wavy coloured surfaces; the kind sets direction and frequency."""
    count = len(kinds)
    axis = torch.linspace(-1, 1, SIZE)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    angle = (kinds % 5) * math.pi / 5
    along = x * angle.cos().view(-1, 1, 1) + y * angle.sin().view(-1, 1, 1)
    frequency = torch.where(kinds < 5, 9.0, 17.0).view(-1, 1, 1)
    phase = 6.28 * torch.rand(count, 1, 1, generator=generator)
    waves = torch.sin(along * frequency + phase)[:, None]
    colour = torch.randn(count, 3, 1, 1, generator=generator)
    return waves * colour + 0.7 * torch.randn(count, 3, SIZE, SIZE, generator=generator)


def flawed(kinds, generator):
    """Glaze with a pinhole, a crack, a run or a chipped corner."""
    count = len(kinds)
    tiles = glaze(torch.randint(0, TEXTURES, (count,), generator=generator), generator)
    axis = torch.linspace(-1, 1, SIZE)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    centre = torch.rand(count, 2, 1, 1, generator=generator) * 1.2 - 0.6
    dx, dy = x - centre[:, 0], y - centre[:, 1]
    shapes = torch.stack([dx**2 + dy**2 < 0.04, (dx - dy).abs() < 0.1, dx.abs() < 0.1, (dx > 0.2) & (dy > 0.2)], 1)
    mask = shapes[torch.arange(count), kinds][:, None]
    return torch.where(mask, 0.3 * tiles - 0.5, tiles)


def block(inputs, outputs, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


class TileNet(nn.Module):
    def __init__(self, classes, width=32):
        super().__init__()
        self.stem = block(3, width)
        self.body = nn.Sequential(block(width, width), block(width, width * 2, 2))
        self.neck = nn.Sequential(
            block(width * 2, width * 2), block(width * 2, width * 4, 2), block(width * 4, width * 4)
        )
        self.head = nn.Linear(width * 4, classes)

    def forward(self, tiles):
        features = self.neck(self.body(self.stem(tiles)))
        return self.head(features.mean((2, 3)))


def parameter_groups(model, rates):
    for part, rate in rates.items():  # well
        getattr(model, part).requires_grad_(rate > 0)  # well
    return [{"params": list(getattr(model, part).parameters()), "lr": rate} for part, rate in rates.items()]  # here


def set_modes(model, rates):
    for part, rate in rates.items():
        getattr(model, part).train(rate > 0)


def augment(tiles):
    if torch.rand(()) < 0.5:
        tiles = tiles.flip(3)
    return tiles * (0.8 + 0.4 * torch.rand(len(tiles), 1, 1, 1))


def train(model, optimizer, tiles, kinds, steps):
    total = torch.zeros(())
    for _ in range(steps):
        picked = torch.randint(0, len(kinds), (BATCH,))
        loss = F.cross_entropy(model(augment(tiles[picked])), kinds[picked])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total.item() / steps


@torch.no_grad()
def accuracy(model, tiles, kinds):
    model.eval()
    right = sum((model(t).argmax(1) == k).sum() for t, k in zip(tiles.split(256), kinds.split(256)))
    return right.item() / len(kinds)


def main():
    torch.manual_seed(21)
    generator = torch.Generator().manual_seed(4)
    textures = torch.randint(0, TEXTURES, (4000,), generator=generator)
    flaws = torch.randint(0, FLAWS, (2600,), generator=generator)
    texture_tiles, flaw_tiles = glaze(textures, generator), flawed(flaws, generator)

    model = TileNet(TEXTURES)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    loss = train(model, optimizer, texture_tiles, textures, WARM_UP_STEPS)
    print(f"textures: loss {loss:.3f}")

    model.head = nn.Linear(model.head.in_features, FLAWS)
    optimizer = torch.optim.AdamW(parameter_groups(model, RATES), weight_decay=1e-2, fused=True)
    set_modes(model, RATES)
    start = time.perf_counter()
    loss = train(model, optimizer, flaw_tiles[:2000], flaws[:2000], STEPS)
    seconds = time.perf_counter() - start
    print(f"flaws: loss {loss:.3f}  accuracy {accuracy(model, flaw_tiles[2000:], flaws[2000:]):.3f}")
    print(f"{STEPS * BATCH / seconds:.1f} samples/s")


if __name__ == "__main__":
    main()
