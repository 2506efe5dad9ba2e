# /// clinic
# expect = ["PD10"]
# stratum = "twins"
# domain = "object detection"
# ///
"""Trains a one-stage detector of bright rectangles on synthetic grey images."""

import time

import torch
import torch.nn.functional as F
from torch import nn

SIZE = 64
STRIDE = 8
SHAPES = ((12.0, 12.0), (20.0, 12.0), (12.0, 20.0))
CLASSES = 3
BOXES = 8
BATCH = 12
POOL = 384
WIDTH = 32
POSITIVE = 0.5
STEPS = 640
WARMUP = 20


def scenes(n, generator):
    """Images, boxes as corners, classes, and how many of the boxes are real."""
    wh = 8 + 16 * torch.rand(n, BOXES, 2, generator=generator)
    xy = torch.rand(n, BOXES, 2, generator=generator) * (SIZE - wh)
    boxes = torch.cat([xy, xy + wh], -1)
    kinds = torch.randint(CLASSES, (n, BOXES), generator=generator)
    counts = torch.randint(3, BOXES + 1, (n,), generator=generator)
    axis = torch.arange(SIZE) + 0.5
    inx = (axis > boxes[..., 0:1]) & (axis < boxes[..., 2:3])
    iny = (axis > boxes[..., 1:2]) & (axis < boxes[..., 3:4])
    there = (torch.arange(BOXES) < counts[:, None])[..., None, None]
    paint = (iny[..., :, None] & inx[..., None, :] & there) * (0.4 + 0.3 * kinds)[..., None, None]
    images = paint.amax(1, keepdim=True) + 0.1 * torch.randn(n, 1, SIZE, SIZE, generator=generator)
    return images, boxes, kinds, counts


def make_anchors():
    c = (torch.arange(SIZE // STRIDE) + 0.5) * STRIDE
    cy, cx = torch.meshgrid(c, c, indexing="ij")
    centre = torch.stack([cx, cy], -1).view(-1, 1, 2)
    half = torch.tensor(SHAPES) / 2
    return torch.cat([centre - half, centre + half], -1).view(-1, 4)


def conv(a, b, stride):
    return nn.Sequential(nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True))


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            conv(1, WIDTH, 2),
            conv(WIDTH, WIDTH, 1),
            conv(WIDTH, 2 * WIDTH, 2),
            conv(2 * WIDTH, 2 * WIDTH, 1),
            conv(2 * WIDTH, 4 * WIDTH, 2),
        )
        self.head = nn.Conv2d(4 * WIDTH, len(SHAPES) * (CLASSES + 1 + 4), 3, 1, 1)

    def forward(self, x):
        y = self.head(self.body(x)).permute(0, 2, 3, 1)
        y = y.reshape(x.size(0), -1, CLASSES + 5)
        return y[..., : CLASSES + 1], y[..., CLASSES + 1 :]


def iou(a, b):
    """Overlap of corner boxes, broadcast over everything but the last axis."""
    low = torch.maximum(a[..., :2], b[..., :2])
    high = torch.minimum(a[..., 2:], b[..., 2:])
    inter = (high - low).clamp_min(0).prod(-1)
    return inter / ((a[..., 2:] - a[..., :2]).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1) - inter)


def offsets(anchors, boxes):
    size = anchors[..., 2:] - anchors[..., :2]
    shift = (boxes[..., :2] + boxes[..., 2:] - anchors[..., :2] - anchors[..., 2:]) / 2 / size
    return torch.cat([shift, ((boxes[..., 2:] - boxes[..., :2]) / size).log()], -1)


def targets(anchors, boxes, kinds, counts):
    wanted = torch.full((boxes.size(0), anchors.size(0)), CLASSES)
    coords = torch.zeros(boxes.size(0), anchors.size(0), 4)
    for n in range(boxes.size(0)):  # sick
        taken = torch.zeros(anchors.size(0))  # sick
        for k in range(int(counts[n])):  # sick
            overlap = iou(anchors, boxes[n, k])  # sick here
            mine = (overlap >= POSITIVE) & (overlap > taken)  # sick
            if mine.any():  # sick
                wanted[n, mine] = kinds[n, k]  # sick
                coords[n, mine] = offsets(anchors[mine], boxes[n, k])  # sick
                taken = torch.maximum(taken, overlap)  # sick
    overlap = iou(anchors[None, None], boxes[:, :, None])  # well
    overlap = overlap.masked_fill(torch.arange(BOXES)[:, None] >= counts[:, None, None], 0)  # well
    best, owner = overlap.max(1)  # well
    mine = best >= POSITIVE  # well
    wanted = torch.where(mine, kinds.gather(1, owner), wanted)  # well
    owned = boxes.gather(1, owner[..., None].expand(-1, -1, 4))  # well
    coords = torch.where(mine[..., None], offsets(anchors, owned), coords)  # well
    return wanted, coords


def detection_loss(outputs, anchors, boxes, kinds, counts):
    logits, deltas = outputs
    wanted, coords = targets(anchors, boxes, kinds, counts)
    weight = torch.ones(CLASSES + 1)
    weight[CLASSES] = 0.1
    classify = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), weight)
    found = (wanted < CLASSES).unsqueeze(-1)
    regress = (F.smooth_l1_loss(deltas, coords, reduction="none") * found).sum() / found.sum().clamp_min(1)
    return classify + regress


def main():
    torch.manual_seed(1)
    g = torch.Generator().manual_seed(1)
    pool, anchors = scenes(POOL, g), make_anchors()
    model = Detector().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True, fused=True)
    began = None
    for step in range(WARMUP + STEPS):
        if step == WARMUP:
            began = time.perf_counter()
        pick = torch.randint(POOL, (BATCH,), generator=g)
        images, boxes, kinds, counts = (part[pick] for part in pool)
        optimizer.zero_grad(set_to_none=True)
        detection_loss(model(images), anchors, boxes, kinds, counts).backward()
        optimizer.step()
    print(f"{STEPS * BATCH / (time.perf_counter() - began):.1f} samples/s")


if __name__ == "__main__":
    main()
