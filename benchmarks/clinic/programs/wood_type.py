# /// clinic
# expect = ["PD02.odd-channels"]
# stratum = "twins"
# domain = "wear of letterpress wood type"
# ///
"""Grade scanned letterpress wood type by the kind of wear on its printing face.

The scans are synthetic: strokes of random capitals, pressed and damaged in one of five ways.
"""

import argparse
import time

import numpy as np
import torch
import torch.nn.functional as F
from scipy import ndimage
from torch import nn

GRADES = ("crisp", "rounded", "chipped", "wormed", "cracked")


def draw_letter(rng, size):
    face = np.zeros((size, size), dtype=bool)
    for _ in range(rng.integers(3, 6)):
        thick = rng.integers(7, 12)
        a = rng.integers(6, size - 6 - thick)
        lo = rng.integers(5, size // 3)
        hi = rng.integers(2 * size // 3, size - 5)
        if rng.random() < 0.5:
            face[a : a + thick, lo:hi] = True
        else:
            face[lo:hi, a : a + thick] = True
    return face


def wear(face, grade, rng):
    size = face.shape[0]
    yy, xx = np.mgrid[:size, :size]
    if grade == 1:
        face = ndimage.gaussian_filter(face.astype(np.float32), 3.2) > 0.5
    elif grade == 2:
        rim = np.argwhere(face & ~ndimage.binary_erosion(face))
        for y, x in rim[rng.choice(len(rim), 7, replace=False)]:
            r = rng.uniform(2.0, 4.0)
            face = face & ~((yy - y) ** 2 + (xx - x) ** 2 < r * r)
    elif grade == 3:
        wood = np.argwhere(ndimage.binary_erosion(face, iterations=2))
        for y, x in wood[rng.choice(len(wood), 10, replace=False)]:
            face = face & ~((yy - y) ** 2 + (xx - x) ** 2 < 2.6)
    elif grade == 4:
        for _ in range(3):
            angle, off = rng.uniform(-0.5, 0.5), rng.uniform(0.2, 0.8) * size
            face = face & ~(np.abs(xx - off - angle * (yy - size / 2)) < 0.8)
    return face


def make_scans(count, size, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, len(GRADES), count)
    scans = np.empty((count, 1, size, size), dtype=np.float32)
    for i, grade in enumerate(labels):
        face = wear(draw_letter(rng, size), grade, rng)
        ink = ndimage.gaussian_filter(face.astype(np.float32), 0.6)
        scans[i, 0] = ink + rng.normal(0, 0.18, (size, size))
    scans = (scans - scans.mean()) / scans.std()
    return torch.from_numpy(scans), torch.from_numpy(labels)


def scaled(channels, width):
    return int(channels * width)  # sick here
    return max(16, int(channels * width + 8) // 16 * 16)  # well


def conv_bn(cin, cout, stride=1):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, stride, 1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
    )


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = conv_bn(channels, channels)
        self.second = nn.Sequential(
            nn.Conv2d(channels, channels, 3, 1, 1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x):
        return F.relu(x + self.second(self.first(x)))


class TypeGrader(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        c1, c2, c3 = (scaled(c, width) for c in (32, 64, 96))  # here
        self.stem = conv_bn(1, c1, stride=2)
        self.body = nn.Sequential(
            Residual(c1),
            conv_bn(c1, c2, stride=2),
            Residual(c2),
            conv_bn(c2, c3, stride=2),
            Residual(c3),
        )
        self.head = nn.Linear(c3, classes)

    def forward(self, x):
        x = self.body(self.stem(x))
        return self.head(x.mean((2, 3)))


@torch.inference_mode()
def accuracy(model, scans, labels, batch):
    model.eval()
    hits = 0
    for x, y in zip(scans.split(batch), labels.split(batch)):
        hits += (model(x).argmax(1) == y).sum().item()
    model.train()
    return hits / len(labels)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=18)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--scans", type=int, default=1536)
    p.add_argument("--size", type=int, default=64)
    p.add_argument("--width", type=float, default=0.55)
    p.add_argument("--lr", type=float, default=0.05)
    args = p.parse_args()

    torch.manual_seed(5)
    scans, labels = make_scans(args.scans, args.size, seed=1)
    held_scans, held_labels = make_scans(256, args.size, seed=2)
    model = TypeGrader(args.width, len(GRADES))
    steps = args.epochs * (args.scans // args.batch)
    opt = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, args.lr, total_steps=steps)

    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for pick in torch.randperm(args.scans).split(args.batch):
            x, y = scans[pick], labels[pick]
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            sched.step()
            total += loss.item() * len(y)
        if epoch % 6 == 5:
            held = accuracy(model, held_scans, held_labels, args.batch)
            print(f"epoch {epoch + 1:3d}  loss {total / args.scans:.3f}  held-out {held:.3f}")
    print(f"training took {time.perf_counter() - begin:.1f} s")


if __name__ == "__main__":
    main()
