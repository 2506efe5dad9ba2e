# /// clinic
# stratum = "placebo"
# domain = "object detection"
# ///
"""Trains a one-stage detector on images of random rectangles."""

import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE = 96
GRID = 12
CLASSES = 3
WIDTH = 24
BATCH = 16
STEPS = 500
WARMUP = 20
WORKERS = 1


class Rectangles(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        gen = torch.Generator().manual_seed(i)
        image = 0.1 * torch.randn(3, SIZE, SIZE, generator=gen)
        target = torch.zeros(5 + CLASSES, GRID, GRID)
        cell = SIZE // GRID
        for _ in range(4):
            w, h = torch.randint(8, 28, (2,), generator=gen).tolist()
            x, y = torch.randint(0, SIZE - 28, (2,), generator=gen).tolist()
            kind = int(torch.randint(0, CLASSES, (), generator=gen))
            image[kind, y : y + h, x : x + w] += 1.0
            cx, cy = x + w / 2, y + h / 2
            col, row = int(cx // cell), int(cy // cell)
            box = torch.tensor([1.0, cx / cell - col, cy / cell - row, w / SIZE, h / SIZE])
            target[:5, row, col] = box
            target[5:, row, col] = 0
            target[5 + kind, row, col] = 1
        return image, target


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        layers, last = [], 3
        for i in range(3):
            width = WIDTH * 2**i
            layers += [
                nn.Conv2d(last, width, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
            ]
            last = width
        self.net = nn.Sequential(*layers, nn.Conv2d(last, 5 + CLASSES, 1))

    def forward(self, x):
        return self.net(x)


def detection_loss(out, target):
    there = target[:, 0]
    score = F.binary_cross_entropy_with_logits(out[:, 0], there)
    box = ((out[:, 1:5].sigmoid() - target[:, 1:5]) ** 2).sum(1) * there
    kind = F.cross_entropy(out[:, 5:], target[:, 5:].argmax(1), reduction="none") * there
    return score + (5 * box + kind).sum() / there.sum().clamp(min=1)


def main():
    torch.manual_seed(0)
    model = Detector()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    loader = DataLoader(
        Rectangles(STEPS * BATCH), batch_size=BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=True
    )
    for step, (images, targets) in enumerate(loader):
        if step == WARMUP:
            start = time.perf_counter()
        loss = detection_loss(model(images), targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    rate = (STEPS - WARMUP) * BATCH / (time.perf_counter() - start)
    print(f"{rate:.1f} samples/s")


if __name__ == "__main__":
    main()
