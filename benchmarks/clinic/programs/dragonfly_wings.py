# /// clinic
# expect = ["PD02.channels-last"]
# stratum = "twins"
# domain = "dragonfly wing veins"
# ///
"""Vein and cell segmentation of dragonfly wings.

The wings are drawn as Voronoi mosaics (cells), the borders are the veins and a dark patch near the tip is the pterostigma.
Classes: 0 membrane, 1 vein, 2 pterostigma.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wings", type=int, default=450)
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--cells", type=int, default=28)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=11)
    return parser.parse_args()


def draw_wing(rng, size, cells):
    yy, xx = np.mgrid[0:size, 0:size].astype(np.float32) / size
    seeds = rng.random((cells, 2), dtype=np.float32)
    stretch = 0.6 + 0.8 * rng.random(dtype=np.float32)
    near = np.full((size, size), 9.0, dtype=np.float32)
    second = near.copy()
    for sx, sy in seeds:
        d = np.sqrt((xx - sx) ** 2 + (stretch * (yy - sy)) ** 2)
        second = np.minimum(second, np.maximum(d, near))
        near = np.minimum(near, d)
    mask = (second - near < 0.022).astype(np.int64)
    cx, cy = 0.6 + 0.3 * rng.random(), 0.1 + 0.3 * rng.random()
    stigma = (np.abs(xx - cx) < 0.1) & (np.abs(yy - cy) < 0.04)
    mask[stigma] = 2
    tint = rng.uniform(0.5, 0.9, size=(3, 1, 1)).astype(np.float32)
    image = np.broadcast_to(tint, (3, size, size)).copy()
    image -= 0.35 * (mask == 1)
    image -= 0.30 * (mask == 2)
    image += 0.12 * rng.standard_normal(image.shape).astype(np.float32)
    return image, mask


def make_wings(args):
    rng = np.random.default_rng(args.seed)
    pairs = [draw_wing(rng, args.size, args.cells) for _ in range(args.wings)]
    images = torch.from_numpy(np.stack([p[0] for p in pairs])).float()
    masks = torch.from_numpy(np.stack([p[1] for p in pairs]))
    return TensorDataset((images - images.mean()) / images.std(), masks)


class ConvBN(nn.Sequential):
    def __init__(self, cin, cout, k=1, stride=1, act=True):
        layers = [nn.Conv2d(cin, cout, k, stride=stride, padding=k // 2, bias=False), nn.BatchNorm2d(cout)]
        if act:
            layers.append(nn.ReLU(inplace=True))
        super().__init__(*layers)


class Bottleneck(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        mid = cout // 2
        self.body = nn.Sequential(ConvBN(cin, mid), ConvBN(mid, mid, k=3, stride=stride), ConvBN(mid, cout, act=False))
        same = cin == cout and stride == 1
        self.skip = nn.Identity() if same else ConvBN(cin, cout, stride=stride, act=False)

    def forward(self, x):
        return F.relu(self.body(x) + self.skip(x))


class VeinNet(nn.Module):
    def __init__(self, width, classes=3):
        super().__init__()
        self.stem = ConvBN(3, width, k=3, stride=2)
        self.down1 = nn.Sequential(Bottleneck(width, width), Bottleneck(width, width))
        self.down2 = nn.Sequential(Bottleneck(width, 2 * width, stride=2), Bottleneck(2 * width, 2 * width))
        self.down3 = nn.Sequential(Bottleneck(2 * width, 2 * width, stride=2), Bottleneck(2 * width, 2 * width))
        self.lateral = nn.ModuleList([ConvBN(width, width), ConvBN(2 * width, width), ConvBN(2 * width, width)])
        self.fuse = ConvBN(width, width // 2)
        self.head = nn.Conv2d(width // 2, classes, 1)

    def forward(self, x):
        size = x.shape[-2:]
        a = self.down1(self.stem(x))
        b = self.down2(a)
        c = self.down3(b)
        top = self.lateral[2](c)
        top = self.lateral[1](b) + F.interpolate(top, scale_factor=2, mode="nearest")
        top = self.lateral[0](a) + F.interpolate(top, scale_factor=2, mode="nearest")
        return F.interpolate(self.head(self.fuse(top)), size=size, mode="bilinear", align_corners=False)


@torch.no_grad()
def mean_iou(model, loader, classes=3):
    model.eval()
    inter, union = torch.zeros(classes), torch.zeros(classes)
    for image, mask in loader:
        guess = model(image).argmax(1)
        for k in range(classes):
            inter[k] += ((guess == k) & (mask == k)).sum()
            union[k] += ((guess == k) | (mask == k)).sum()
    model.train()
    return (inter / union.clamp(min=1)).mean().item()


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    wings = make_wings(args)
    n_val = len(wings) // 12
    train_set, val_set = random_split(wings, [len(wings) - n_val, n_val])
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, drop_last=True)
    val_loader = DataLoader(val_set, batch_size=args.batch_size)

    model = VeinNet(args.width)  # sick here
    model = VeinNet(args.width).to(memory_format=torch.channels_last)  # well
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * 10, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=args.lr * 10, total_steps=args.epochs * len(train_loader)
    )
    weight = torch.tensor([0.6, 1.4, 1.6])

    seen, start = 0, time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for image, mask in train_loader:
            image = image.to(memory_format=torch.channels_last)  # well
            logits = model(image)
            loss = F.cross_entropy(logits, mask, weight=weight)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
            seen += len(image)
        iou = mean_iou(model, val_loader)
        print(f"epoch {epoch}: loss {total / len(train_loader):.4f}, validation mIoU {iou:.3f}")
    rate = seen / (time.perf_counter() - start)
    print(f"{rate:.1f} samples/s")


if __name__ == "__main__":
    main()
