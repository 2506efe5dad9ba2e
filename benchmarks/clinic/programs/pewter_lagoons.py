# /// clinic
# expect = ["PD10.enlarged-first"]
# stratum = "twins"
# domain = "segmentation"
# ///
"""Semantic segmentation of lagoons, reefs and islands seen from above.

An encoder of three stages, a feature pyramid on top of it, and a per-pixel classifier, trained with cross entropy.

    python train.py --epochs 5 --lr 0.02
"""

import argparse
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def get_args():
    p = argparse.ArgumentParser(description="semantic segmentation")
    p.add_argument("--images", type=int, default=440)
    p.add_argument("--size", type=int, default=96)
    p.add_argument("--classes", type=int, default=6)
    p.add_argument("--width", type=int, default=32)
    p.add_argument("--fpn-channels", type=int, default=48)
    p.add_argument("--epochs", type=int, default=5)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--lr", type=float, default=0.02)
    p.add_argument("--momentum", type=float, default=0.9)
    p.add_argument("--weight-decay", type=float, default=1e-4)
    p.add_argument("--seed", type=int, default=11)
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


def draw_scene(size, classes, colours):
    """Open sea with a few ellipses of other classes; image (3, size, size) and mask (size, size)."""
    yy, xx = np.mgrid[0:size, 0:size].astype(np.float32)
    mask = np.zeros((size, size), dtype=np.int64)
    for _ in range(np.random.randint(3, 8)):
        cy, cx = np.random.uniform(0, size, 2)
        ry, rx = np.random.uniform(0.08, 0.3, 2) * size
        mask[((yy - cy) / ry) ** 2 + ((xx - cx) / rx) ** 2 < 1] = np.random.randint(1, classes)
    image = colours[mask].transpose(2, 0, 1) + 0.3 * np.random.standard_normal((3, size, size)).astype(np.float32)
    return image, mask


def build_dataset(args):
    colours = np.random.uniform(-1, 1, (args.classes, 3)).astype(np.float32)
    images, masks = zip(*[draw_scene(args.size, args.classes, colours) for _ in range(args.images)])
    return TensorDataset(torch.from_numpy(np.stack(images)), torch.from_numpy(np.stack(masks)))


class ConvBNReLU(nn.Sequential):
    def __init__(self, cin, cout, kernel=3, stride=1):
        super().__init__(
            nn.Conv2d(cin, cout, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True)
        )


class Encoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stem = ConvBNReLU(3, width, 5, 2)
        self.stage1 = nn.Sequential(ConvBNReLU(width, width, 3, 2), ConvBNReLU(width, width))
        self.stage2 = nn.Sequential(ConvBNReLU(width, 2 * width, 3, 2), ConvBNReLU(2 * width, 2 * width))
        self.stage3 = nn.Sequential(ConvBNReLU(2 * width, 4 * width, 3, 2), ConvBNReLU(4 * width, 4 * width))

    def forward(self, x):
        c1 = self.stage1(self.stem(x))
        c2 = self.stage2(c1)
        return c1, c2, self.stage3(c2)


class SegmentationFPN(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.encoder = Encoder(args.width)
        self.lateral = nn.ModuleList([nn.Conv2d(args.width * m, args.fpn_channels, 1) for m in (1, 2, 4)])
        self.fuse = nn.Sequential(
            ConvBNReLU(args.fpn_channels, args.fpn_channels), ConvBNReLU(args.fpn_channels, args.fpn_channels)
        )
        self.classifier = nn.Conv2d(args.fpn_channels, args.classes, 1)

    def forward(self, images):
        c1, c2, c3 = self.encoder(images)
        x = self.lateral[2](c3)
        x = self.lateral[1](c2) + F.interpolate(x, scale_factor=2.0, mode="nearest")
        x = self.lateral[0](c1) + F.interpolate(x, scale_factor=2.0, mode="nearest")
        x = self.fuse(x)
        x = self.classifier(x)  # well
        x = F.interpolate(x, size=images.shape[-2:], mode="bilinear", align_corners=False)  # here
        x = self.classifier(x)  # sick here
        return x


@torch.no_grad()
def mean_iou(model, loader, classes):
    model.eval()
    confusion = torch.zeros(classes * classes, dtype=torch.long)
    for images, masks in loader:
        pred = model(images).argmax(1)
        confusion += torch.bincount((masks * classes + pred).flatten(), minlength=classes * classes)
    confusion = confusion.view(classes, classes).float()
    hit = confusion.diag()
    return (hit / (confusion.sum(0) + confusion.sum(1) - hit).clamp(min=1)).mean().item()


def train_one_epoch(model, loader, optimizer, scheduler):
    losses = AverageMeter()
    model.train()
    for images, masks in loader:
        loss = F.cross_entropy(model(images), masks)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.update(loss.item(), len(images))
    return losses.avg


def main():
    args = get_args()
    set_seed(args.seed)
    dataset = build_dataset(args)
    held_out = args.images // 10
    train_set, val_set = torch.utils.data.random_split(dataset, [args.images - held_out, held_out])
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True, drop_last=True)
    val_loader = DataLoader(val_set, args.batch_size)
    model = SegmentationFPN(args)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=args.momentum, weight_decay=args.weight_decay)
    total = args.epochs * len(train_loader)
    scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, total, power=0.9)
    start = time.perf_counter()
    for epoch in range(args.epochs):
        loss = train_one_epoch(model, train_loader, optimizer, scheduler)
        print(f"Epoch: [{epoch}]  loss: {loss:.4f}")
    elapsed = time.perf_counter() - start
    print(f"mean IoU {mean_iou(model, val_loader, args.classes):.3f}")
    print(f"{total * args.batch_size / elapsed:.1f} samples/s")


if __name__ == "__main__":
    main()
