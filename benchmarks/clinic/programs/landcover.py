# /// clinic
# expect = ["PD10.repeated-work", "PD20.metrics-in-each-step"]
# stratum = "twins"
# domain = "satellite images"
# ///
"""Land-cover segmentation of four-band satellite tiles (blue, green, red, near infrared) with a small U-Net.

Reports overall accuracy, precision, recall, F1 and mean IoU of the training tiles after every pass.
"""

import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MetricCollection
from torchmetrics.classification import (
    MulticlassAccuracy,
    MulticlassF1Score,
    MulticlassJaccardIndex,
    MulticlassPrecision,
    MulticlassRecall,
)


CLASSES = ["water", "forest", "grass", "crops", "bare", "urban", "road", "wetland"]
BANDS = 4
TILE = 128
TILES = 160
BATCH = 8
EPOCHS = 10
WIDTH = 24


def make_tiles(count: int, seed: int = 3):
    """Smooth random class maps, each class with its own spectrum, plus sensor noise and haze."""
    gen = torch.Generator().manual_seed(seed)
    coarse = torch.randn(count, len(CLASSES), TILE // 16, TILE // 16, generator=gen)
    scores = F.interpolate(coarse, size=(TILE, TILE), mode="bilinear", align_corners=False)
    masks = scores.argmax(dim=1)
    spectra = torch.rand(len(CLASSES), BANDS, generator=gen)
    images = spectra[masks].permute(0, 3, 1, 2)
    haze = F.interpolate(torch.rand(count, 1, 4, 4, generator=gen), size=(TILE, TILE), mode="bilinear")
    images = images + 0.2 * haze + 0.15 * torch.randn(images.shape, generator=gen)
    return images.contiguous(), masks


class ConvBlock(nn.Sequential):
    def __init__(self, inside: int, outside: int):
        super().__init__(
            nn.Conv2d(inside, outside, 3, padding=1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(inplace=True),
        )


class SmallUNet(nn.Module):
    def __init__(self, width: int = WIDTH):
        super().__init__()
        self.stem = nn.Conv2d(BANDS, width, 4, stride=2, padding=1)
        self.enc1 = ConvBlock(width, width)
        self.enc2 = ConvBlock(width, width * 2)
        self.enc3 = ConvBlock(width * 2, width * 4)
        self.dec2 = ConvBlock(width * 6, width * 2)
        self.dec1 = ConvBlock(width * 3, width)
        self.head = nn.Conv2d(width, len(CLASSES), 1)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x):
        a = self.enc1(self.stem(x))
        b = self.enc2(self.pool(a))
        c = self.enc3(self.pool(b))
        b = self.dec2(torch.cat([F.interpolate(c, scale_factor=2.0), b], dim=1))
        a = self.dec1(torch.cat([F.interpolate(b, scale_factor=2.0), a], dim=1))
        return F.interpolate(self.head(a), scale_factor=2.0, mode="bilinear", align_corners=False)


class TrainingScores:
    """Pixel scores over one pass of the training tiles."""

    def __init__(self):
        n = len(CLASSES)
        self.metrics = {  # sick here
            "accuracy": MulticlassAccuracy(n),  # sick here
            "precision": MulticlassPrecision(n),  # sick here
            "recall": MulticlassRecall(n),  # sick here
            "f1": MulticlassF1Score(n),  # sick here
            "iou": MulticlassJaccardIndex(n),  # sick here
        }  # sick
        self.metrics = MetricCollection(  # well
            {  # well
                "accuracy": MulticlassAccuracy(n, validate_args=False),  # well
                "precision": MulticlassPrecision(n, validate_args=False),  # well
                "recall": MulticlassRecall(n, validate_args=False),  # well
                "f1": MulticlassF1Score(n, validate_args=False),  # well
                "iou": MulticlassJaccardIndex(n, validate_args=False),  # well
            }  # well
        )  # well

    def add(self, logits, masks):
        for metric in self.metrics.values():  # sick here
            metric(logits, masks)  # sick here
        self.metrics.update(logits.max(dim=1).indices, masks)  # well

    def finish(self) -> dict[str, float]:
        values = {name: metric.compute().item() for name, metric in self.metrics.items()}
        for metric in self.metrics.values():
            metric.reset()
        return values


def train_pass(model, loader, optimizer, scores):
    model.train()
    running = torch.zeros(())
    for images, masks in loader:
        logits = model(images)
        loss = F.cross_entropy(logits, masks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.detach()
        scores.add(logits.detach(), masks)
    return running.item() / len(loader)


def main():
    torch.manual_seed(0)
    images, masks = make_tiles(TILES)
    loader = DataLoader(TensorDataset(images, masks), batch_size=BATCH, shuffle=True)
    model = SmallUNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scores = TrainingScores()
    start = time.perf_counter()
    for epoch in range(EPOCHS):
        loss = train_pass(model, loader, optimizer, scores)
        line = "  ".join(f"{name} {value:.3f}" for name, value in scores.finish().items())
        print(f"pass {epoch + 1:2d}  loss {loss:.4f}  {line}  {time.perf_counter() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
