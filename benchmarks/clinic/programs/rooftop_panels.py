# /// clinic
# expect = ["PD10.enlarged-first"]
# stratum = "twins"
# domain = "aerial photographs: segmentation of solar panels"
# ///
"""Finding solar panels on roofs in aerial photographs: ground, roof, photovoltaic, solar thermal for each pixel."""

import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


CLASSES = ("ground", "roof", "photovoltaic", "thermal")
COLOURS = np.array([[0.35, 0.42, 0.30], [0.55, 0.35, 0.30], [0.10, 0.12, 0.28], [0.15, 0.15, 0.18]], dtype=np.float32)


def draw_tiles(count, size, seed):
    rng = np.random.default_rng(seed)
    masks = np.zeros((count, size, size), dtype=np.int64)
    for mask in masks:
        for _ in range(rng.integers(2, 5)):
            top, left = rng.integers(0, size - 32, 2)
            height, width = rng.integers(24, 56, 2)
            mask[top : top + height, left : left + width] = 1
            kind = rng.choice([0, 2, 2, 3])
            if kind:
                mask[top + 4 : top + height // 2, left + 4 : left + width - 6] = kind
    images = COLOURS[masks].transpose(0, 3, 1, 2)
    images = images + rng.normal(0, 0.12, images.shape).astype(np.float32)
    return TensorDataset(torch.from_numpy(np.ascontiguousarray(images, dtype=np.float32)), torch.from_numpy(masks))


def conv(inputs, outputs, stride=1, dilation=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, dilation, dilation, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class Block(nn.Module):
    def __init__(self, width, dilation=1):
        super().__init__()
        self.first = conv(width, width, dilation=dilation)
        self.second = conv(width, width)

    def forward(self, x):
        return x + self.second(self.first(x))


class PanelNet(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        classes = len(CLASSES)
        self.stem = nn.Sequential(conv(3, 32, stride=2), conv(32, 64, stride=2))
        self.low = Block(64)
        self.down = conv(64, width, stride=2)
        self.high = nn.Sequential(Block(width), Block(width, dilation=2))
        self.reduce = nn.Conv2d(64, width, 1)
        self.fuse = conv(width, width)
        self.classifier = nn.Conv2d(width, classes, 1)

    def forward(self, image):
        low = self.low(self.stem(image))
        high = self.high(self.down(low))
        high = F.interpolate(high, size=low.shape[-2:], mode="bilinear", align_corners=False)
        fused = self.fuse(high + self.reduce(low))
        fused = F.interpolate(fused, size=image.shape[-2:], mode="bilinear", align_corners=False)  # sick here
        return self.classifier(fused)  # sick here
        logits = self.classifier(fused)  # well
        return F.interpolate(logits, size=image.shape[-2:], mode="bilinear", align_corners=False)  # well


class Trainer:
    def __init__(self, model, train, valid, options):
        self.model = model
        self.train_loader = DataLoader(train, batch_size=options.batch, shuffle=True, drop_last=True)
        self.valid_loader = DataLoader(valid, batch_size=options.batch)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=options.rate, momentum=0.9, weight_decay=1e-4)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, options.rate, epochs=options.epochs, steps_per_epoch=len(self.train_loader)
        )
        self.loss = nn.CrossEntropyLoss(weight=torch.tensor([0.5, 1.0, 1.5, 2.0]))
        self.options = options

    def fit(self):
        for epoch in range(self.options.epochs):
            began = time.perf_counter()
            loss = self.run_epoch()
            print(f"epoch {epoch + 1}: loss {loss:.4f}, {time.perf_counter() - began:.1f} s", flush=True)
        for name, value in self.evaluate().items():
            print(f"  IoU {name:13s} {value:.3f}")

    def run_epoch(self):
        self.model.train()
        total = torch.zeros(())
        for images, masks in self.train_loader:
            self.optimizer.zero_grad()
            loss = self.loss(self.model(images), masks)
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            total += loss.detach()
        return total.item() / len(self.train_loader)

    @torch.inference_mode()
    def evaluate(self):
        self.model.eval()
        confusion = torch.zeros(len(CLASSES) ** 2, dtype=torch.long)
        for images, masks in self.valid_loader:
            guess = self.model(images).argmax(1)
            confusion += torch.bincount((masks * len(CLASSES) + guess).flatten(), minlength=len(CLASSES) ** 2)
        confusion = confusion.view(len(CLASSES), len(CLASSES))
        hits = confusion.diagonal()
        union = (confusion.sum(0) + confusion.sum(1) - hits).clamp(min=1)
        return dict(zip(CLASSES, (hits / union).tolist()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=6)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--size", type=int, default=112)
    options = parser.parse_args()
    torch.manual_seed(0)
    trainer = Trainer(PanelNet(), draw_tiles(240, options.size, 1), draw_tiles(24, options.size, 2), options)
    trainer.fit()


if __name__ == "__main__":
    main()
