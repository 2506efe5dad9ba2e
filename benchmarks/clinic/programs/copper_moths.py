# /// clinic
# expect = ["PD17.gradients-without-optimizer"]
# stratum = "twins"
# domain = "wings of moths"
# ///
"""Teach a small residual network to tell moth-like wing patterns apart, then adapt it to a new collection.

Phase one trains the whole network on many generic wing patterns.  Phase two keeps the trunk as it is and
adapts only the last stage and a new classifier to the rarer patterns of a second collection.
"""

import math
import time

import torch
from torch import nn
import torch.nn.functional as F

SIZE = 32
BATCH = 64
BASE_CLASSES = 12
RARE_CLASSES = 6
BASE_IMAGES = 2048
RARE_IMAGES = 1024
BASE_EPOCHS = 1
RARE_EPOCHS = 6


def make_wings(count, classes, generator, offset=0.0):
    """Striped and spotted images; the class decides the angle and the frequency of the stripes."""
    labels = torch.randint(classes, (count,), generator=generator)
    grid = torch.linspace(-1.0, 1.0, SIZE)
    rows, columns = torch.meshgrid(grid, grid, indexing="ij")
    angle = (labels.float() / classes + offset) * math.pi
    frequency = 4.0 + 3.0 * (labels % 3).float()
    phase = torch.rand(count, generator=generator) * 2 * math.pi
    along = torch.cos(angle)[:, None, None] * rows + torch.sin(angle)[:, None, None] * columns
    stripes = torch.sin(frequency[:, None, None] * along + phase[:, None, None])
    tint = torch.rand(count, 3, 1, 1, generator=generator) * 0.8 + 0.2
    images = stripes[:, None] * tint
    images += 0.6 * torch.randn(images.shape, generator=generator)
    return images, labels


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.skip = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.skip = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.first_norm(self.first(x)), inplace=True)
        y = self.second_norm(self.second(y))
        return F.relu(y + self.skip(x), inplace=True)


class WingNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(3, 16, 3, 1, 1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(inplace=True),
            Block(16, 16, 1),
            Block(16, 32, 2),
            Block(32, 32, 1),
        )
        self.last = Block(32, 64, 2)
        self.head = nn.Linear(64, classes)

    def forward(self, x):
        x = self.last(self.trunk(x))
        return self.head(x.mean(dim=(2, 3)))


def augment(images):
    """A random shift of the batch and a random flip of each image."""
    down, right = torch.randint(-3, 4, (2,)).tolist()
    images = torch.roll(images, (down, right), dims=(2, 3))
    flip = torch.rand(len(images), 1, 1, 1) < 0.5
    return torch.where(flip, images.flip(2).flip(3), images)


def batches(images, labels):
    order = torch.randperm(len(images))
    for chosen in order.split(BATCH):
        yield augment(images[chosen]), labels[chosen]


@torch.no_grad()
def accuracy(model, images, labels):
    model.eval()
    right = sum((model(x).argmax(1) == y).sum().item() for x, y in zip(images.split(256), labels.split(256)))
    return right / len(images)


def learn_base(model, images, labels):
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-3)
    seen = 0
    for _ in range(BASE_EPOCHS):
        model.train()
        for x, y in batches(images, labels):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(x)
    return seen


def adapt(model, images, labels):
    model.head = nn.Linear(model.head.in_features, RARE_CLASSES)
    tuned = [*model.last.parameters(), *model.head.parameters()]
    optimizer = torch.optim.AdamW(tuned, lr=1e-3, weight_decay=1e-3)  # here
    model.trunk.requires_grad_(False)  # well
    seen = 0
    for _ in range(RARE_EPOCHS):
        model.train()
        model.trunk.eval()
        for x, y in batches(images, labels):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(x)
    return seen


def main():
    torch.manual_seed(11)
    generator = torch.Generator().manual_seed(5)
    base = make_wings(BASE_IMAGES, BASE_CLASSES, generator)
    rare = make_wings(RARE_IMAGES, RARE_CLASSES, generator, offset=0.04)
    held_out = make_wings(512, RARE_CLASSES, generator, offset=0.04)

    model = WingNet(BASE_CLASSES)
    started = time.perf_counter()
    seen = learn_base(model, *base)
    seen += adapt(model, *rare)
    elapsed = time.perf_counter() - started

    print(f"accuracy on the second collection: {accuracy(model, *held_out):.3f}")
    print(f"{seen / elapsed:.1f} samples/s")


if __name__ == "__main__":
    main()
