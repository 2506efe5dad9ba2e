# /// clinic
# expect = ["PD03.too-few-workers"]
# allow = ["PD03.transform", "PD08.allocator-churn"]
# stratum = "twins"
# domain = "images"
# smoke = true
# sizes = {CLASSES = [8, 20], WIDTH = [14, 18]}
# severities = {PASSES = [3, 9, 24]}
# ///
"""Classifies photographs that are cropped, mirrored and recoloured anew in every epoch."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 64
CLASSES = 10
WIDTH = 16
PASSES = 9


class Photographs(Dataset):
    def __init__(self, count):
        generator = np.random.default_rng(7)
        self.pixels = generator.integers(0, 256, (count, SIDE + 8, SIDE + 8, 3), dtype=np.uint8)
        self.labels = generator.integers(0, CLASSES, count)

    def __len__(self):
        return len(self.pixels)

    def __getitem__(self, index):
        generator = np.random.default_rng(index)
        top, left = generator.integers(0, 8, 2)
        image = self.pixels[index, top : top + SIDE, left : left + SIDE].astype(np.float32) / 255
        if generator.random() < 0.5:
            image = image[:, ::-1]
        for _ in range(PASSES):
            image = recolour(image, generator)
        return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1))), int(self.labels[index])


def recolour(image, generator):
    brightness, contrast, gamma = generator.uniform(0.8, 1.2, 3)
    image = np.clip((image - 0.5) * contrast + 0.5 * brightness, 0.01, 1) ** gamma
    grey = image @ np.array([0.299, 0.587, 0.114], dtype=np.float32)
    return (0.8 * image + 0.2 * grey[..., None]).astype(np.float32)


def network():
    layers, channels = [], 3
    for width in (WIDTH, 2 * WIDTH, 4 * WIDTH):
        layers += [nn.Conv2d(channels, width, 3, stride=2, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=0)  # sick
    parser.add_argument("--workers", type=int, default=2)  # well
    arguments = parser.parse_args()
    torch.manual_seed(1)
    photographs = Photographs(50 * arguments.batch_size)
    loader = DataLoader(  # here
        photographs,
        batch_size=arguments.batch_size,
        shuffle=True,
        num_workers=arguments.workers,
        persistent_workers=arguments.workers > 0,
    )
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    seen, began = 0, 0.0
    for epoch in range(arguments.epochs):
        if epoch == 1:
            seen, began = 0, time.perf_counter()
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(labels)
        print(f"epoch {epoch}: {loss.item():.3f}")
    print(f"{seen / (time.perf_counter() - began):.1f} images/s")


if __name__ == "__main__":
    main()
