# /// clinic
# expect = ["PD02.odd-channels"]
# stratum = "twins"
# domain = "barnacle cover grades of intertidal quadrat photographs"
# ///
"""Estimate barnacle cover on intertidal rock from quadrat photographs.

The survey team grades each photograph into five cover classes (bare, sparse,
patchy, dense, carpet).  We draw synthetic quadrats with the same statistics and
train a slim plain convolutional network that is later meant for a handheld.

    python barnacle_quadrats.py --epochs 11 --width 0.65
"""

import argparse
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

GRADES = ("bare", "sparse", "patchy", "dense", "carpet")
BASE_WIDTHS = (24, 48, 96)


@dataclass
class Quadrats:
    photos: torch.Tensor
    grades: torch.Tensor

    def __len__(self):
        return len(self.grades)


def draw_quadrat(rng, size, count):
    """One photograph: granite texture, optional weed shadow, `count` shells."""
    axis = np.linspace(0.0, 1.0, size, dtype=np.float32)
    xx, yy = np.meshgrid(axis, axis)
    rock = 0.35 + 0.05 * rng.standard_normal((size, size), dtype=np.float32)
    rock += 0.08 * np.sin(9.0 * (xx * rng.uniform(-1, 1) + yy * rng.uniform(-1, 1)) + rng.uniform(0, 6))
    photo = np.stack([rock, rock * rng.uniform(0.9, 1.05), rock * rng.uniform(0.8, 1.0)])
    if count:
        cx, cy = rng.uniform(0, 1, (2, count, 1, 1)).astype(np.float32)
        radius = rng.uniform(0.025, 0.06, (count, 1, 1)).astype(np.float32)
        dist = np.sqrt((xx - cx) ** 2 + (yy - cy) ** 2) / radius
        wall = np.clip(1.4 - np.abs(dist - 0.8) * 3.0, 0, 1).max(0)
        mouth = np.clip(0.45 - dist, 0, 1).max(0)
        photo += 0.45 * wall - 0.5 * mouth
    return np.clip(photo, 0, 1)


def make_quadrats(n, size, seed):
    rng = np.random.default_rng(seed)
    edges = (0, 3, 9, 18, 32, 50)
    grades = rng.integers(0, len(GRADES), n)
    photos = np.empty((n, 3, size, size), dtype=np.float32)
    for i, g in enumerate(grades):
        photos[i] = draw_quadrat(rng, size, int(rng.integers(edges[g], edges[g + 1])))
    photos = (photos - photos.mean()) / photos.std()
    return Quadrats(torch.from_numpy(photos), torch.from_numpy(grades))


def scale_width(channels, width, divisor=8):
    """Channels of a stage after applying the width multiplier."""
    return max(4, int(channels * width))  # sick here
    return max(divisor, int(channels * width + divisor / 2) // divisor * divisor)  # well


class Stage(nn.Sequential):
    def __init__(self, cin, cout):
        super().__init__(
            nn.Conv2d(cin, cout, 3, padding=1, bias=False),
            nn.BatchNorm2d(cout),
            nn.ReLU(inplace=True),
            nn.Conv2d(cout, cout, 3, padding=1, bias=False),
            nn.BatchNorm2d(cout),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
        )


class CoverNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        widths = [scale_width(c, width) for c in BASE_WIDTHS]
        self.stages = nn.Sequential(*[Stage(a, b) for a, b in zip([3] + widths, widths)])
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], len(GRADES)))

    def forward(self, photos):
        return self.head(self.stages(photos))


class Trainer:
    def __init__(self, args):
        self.args = args
        self.train_set = make_quadrats(args.photos, args.size, seed=1)
        self.test_set = make_quadrats(128, args.size, seed=2)
        self.model = CoverNet(args.width).to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=args.lr, momentum=0.9, nesterov=True, weight_decay=1e-4
        )
        steps = args.epochs * (len(self.train_set) // args.batch)
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, args.lr, total_steps=steps)

    def batches(self):
        order = torch.randperm(len(self.train_set))
        for chunk in order.split(self.args.batch):
            if len(chunk) < self.args.batch:
                break
            photos = self.train_set.photos[chunk]
            if torch.rand(()) < 0.5:
                photos = photos.flip(3)
            yield photos.contiguous(memory_format=torch.channels_last), self.train_set.grades[chunk]

    def train_epoch(self):
        self.model.train()
        total = 0.0
        for photos, grades in self.batches():
            loss = F.cross_entropy(self.model(photos), grades, label_smoothing=0.05)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            total += loss.item()
        return total / (len(self.train_set) // self.args.batch)

    @torch.inference_mode()
    def accuracy(self):
        self.model.eval()
        hits = 0
        for lo in range(0, len(self.test_set), 64):
            photos = self.test_set.photos[lo : lo + 64].contiguous(memory_format=torch.channels_last)
            hits += (self.model(photos).argmax(1) == self.test_set.grades[lo : lo + 64]).sum().item()
        return hits / len(self.test_set)

    def fit(self):
        start = time.perf_counter()
        for epoch in range(self.args.epochs):
            loss = self.train_epoch()
            print(f"epoch {epoch:2d}  loss {loss:.3f}  test accuracy {self.accuracy():.3f}", flush=True)
        return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=11)
    parser.add_argument("--photos", type=int, default=1280)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--width", type=float, default=0.65)
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()

    torch.manual_seed(11)
    trainer = Trainer(args)
    count = sum(p.numel() for p in trainer.model.parameters())
    print(f"{count} parameters, grades: {', '.join(GRADES)}")
    print(f"training took {trainer.fit():.2f} seconds")


if __name__ == "__main__":
    main()
