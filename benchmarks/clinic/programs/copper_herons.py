# /// clinic
# expect = ["PD03.crowded-training"]
# stratum = "twins"
# domain = "street scenes"
# ///
"""Train a small residual network that tells street scenes apart.

The pictures are drawn on the fly: each district of the imaginary town has its own palette and its own rhythm of facades, so a
crop of a picture is enough to name the district.

    python train.py --epochs 20 --lr 0.1
"""

import argparse
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


def get_args():
    p = argparse.ArgumentParser(description="street scene classification")
    p.add_argument("--images", type=int, default=640)
    p.add_argument("--size", type=int, default=320)
    p.add_argument("--crop", type=int, default=64)
    p.add_argument("--classes", type=int, default=8)
    p.add_argument("--width", type=int, default=16)
    p.add_argument("--epochs", type=int, default=12)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--momentum", type=float, default=0.9)
    p.add_argument("--weight-decay", type=float, default=5e-4)
    p.add_argument("--seed", type=int, default=7)
    return p.parse_args()


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


class AverageMeter:
    def __init__(self):
        self.sum, self.count = 0.0, 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(1, self.count)


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, img):
        for t in self.transforms:
            img = t(img)
        return img


class ToFloat:
    def __call__(self, img):
        return img.float().div_(255)


class RandomCrop:
    def __init__(self, size):
        self.size = size

    def __call__(self, img):
        top = random.randint(0, img.shape[-2] - self.size)
        left = random.randint(0, img.shape[-1] - self.size)
        return img[:, top : top + self.size, left : left + self.size]


class RandomHorizontalFlip:
    def __call__(self, img):
        return img.flip(-1) if random.random() < 0.5 else img


class ColorJitter:
    def __init__(self, brightness=0.3, contrast=0.3, saturation=0.3):
        self.brightness, self.contrast, self.saturation = brightness, contrast, saturation

    def __call__(self, img):
        img = img * random.uniform(1 - self.brightness, 1 + self.brightness)
        img = torch.lerp(img.mean(), img, random.uniform(1 - self.contrast, 1 + self.contrast))
        img = torch.lerp(img.mean(0, keepdim=True), img, random.uniform(1 - self.saturation, 1 + self.saturation))
        return img.clamp_(0, 1)


class Normalize:
    def __init__(self, mean, std):
        self.mean, self.std = torch.tensor(mean).view(3, 1, 1), torch.tensor(std).view(3, 1, 1)

    def __call__(self, img):
        return (img - self.mean).div_(self.std)


def build_transform(args):
    return Compose(
        [
            RandomCrop(args.crop),  # well
            ToFloat(),
            ColorJitter(),
            Normalize((0.45, 0.45, 0.45), (0.25, 0.25, 0.25)),
            RandomCrop(args.crop),  # sick here
            RandomHorizontalFlip(),
        ]
    )


class StreetScenes(Dataset):
    """Pictures as uint8 (3, size, size), all of them in memory."""

    def __init__(self, n, size, classes, transform):
        self.transform = transform
        palettes = np.random.RandomState(1).randint(40, 215, (classes, 4, 3))
        rows = np.arange(size)
        self.labels = np.random.randint(0, classes, n)
        self.images = torch.empty(n, 3, size, size, dtype=torch.uint8)
        for i, label in enumerate(self.labels):
            storey, bay = 6 + label % 4 * 3, 8 + label // 4 * 7
            vertical = (rows + np.random.randint(storey)) // storey % 2
            horizontal = (rows + np.random.randint(bay)) // bay % 2
            picture = palettes[label][vertical[:, None] * 2 + horizontal[None]].astype(np.int16)
            grain = np.random.randint(-40, 40, (size, size, 1), dtype=np.int16)
            self.images[i] = torch.from_numpy(np.clip(picture + grain, 0, 255).astype(np.uint8)).permute(2, 0, 1)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.transform(self.images[i]), int(self.labels[i])


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.skip = nn.Identity() if stride == 1 and cin == cout else nn.Conv2d(cin, cout, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.skip(x))


def build_model(width, classes):
    return nn.Sequential(
        nn.Conv2d(3, width, 5, 2, 2, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        Block(width, width, 1),
        Block(width, 2 * width, 2),
        Block(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, classes),
    )


def train_one_epoch(model, loader, optimizer, scheduler):
    losses, top1 = AverageMeter(), AverageMeter()
    model.train()
    for images, target in loader:
        output = model(images)
        loss = F.cross_entropy(output, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.update(loss.item(), len(target))
        top1.update((output.argmax(1) == target).float().mean().item(), len(target))
    return losses.avg, top1.avg


def main():
    args = get_args()
    set_seed(args.seed)
    train_set = StreetScenes(args.images, args.size, args.classes, build_transform(args))
    loader = DataLoader(
        train_set,
        args.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=args.workers,
        persistent_workers=args.workers > 0,
    )
    model = build_model(args.width, args.classes)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=args.momentum, weight_decay=args.weight_decay)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(loader))
    start = time.perf_counter()
    for epoch in range(args.epochs):
        loss, acc = train_one_epoch(model, loader, optimizer, scheduler)
        print(f"epoch {epoch:2d}  loss {loss:.4f}  top1 {acc:.3f}")
    seen = args.epochs * len(loader) * args.batch_size
    print(f"{seen / (time.perf_counter() - start):.1f} samples/s")


if __name__ == "__main__":
    main()
