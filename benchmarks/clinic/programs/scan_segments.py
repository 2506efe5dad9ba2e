# /// clinic
# stratum = "decoys"
# domain = "segmentation of medical volumes (generators)"
# ///
"""Train a small 3-D network that segments lesions in synthetic scans."""

import itertools
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

SCANS = 12
SIZE = 72
PATCH = 40
WIDTH = 12
BATCH = 1
ACCUMULATE = 4
STEPS = 160
WARMUP = 20


def scan(g):
    axis = torch.linspace(-1, 1, SIZE)
    grid = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"))
    volume, mask = 0.3 * torch.randn(SIZE, SIZE, SIZE, generator=g), torch.zeros(SIZE, SIZE, SIZE)
    for _ in range(6):
        centre = torch.rand(3, 1, 1, 1, generator=g) * 1.6 - 0.8
        mask[(grid - centre).square().sum(0) < 0.05] = 1
    return volume + mask, mask


def patches(scans, g):
    while True:
        for i in torch.randperm(len(scans), generator=g).tolist():
            volume, mask = scans[i]
            z, y, x = torch.randint(SIZE - PATCH, (3,), generator=g).tolist()
            window = (slice(z, z + PATCH), slice(y, y + PATCH), slice(x, x + PATCH))
            yield volume[window], mask[window]


def batched(stream, size):
    while True:
        pairs = list(itertools.islice(stream, size))
        yield tuple(torch.stack(part)[:, None] for part in zip(*pairs))


def flipped(stream, g):
    for x, y in stream:
        dims = [d for d in (2, 3, 4) if torch.rand((), generator=g) < 0.5]
        yield x.flip(dims), y.flip(dims)


def conv(cin, cout):
    return nn.Sequential(
        nn.Conv3d(cin, cout, 3, padding=1), nn.InstanceNorm3d(cout, affine=True), nn.LeakyReLU(0.01, inplace=True)
    )


class Segmenter(nn.Module):
    def __init__(self, w=WIDTH):
        super().__init__()
        self.top = conv(1, w)
        self.low = nn.Sequential(conv(w, 2 * w), conv(2 * w, 2 * w))
        self.merge = conv(3 * w, w)
        self.out = nn.Conv3d(w, 1, 1)

    def forward(self, x):
        top = self.top(x)
        low = F.interpolate(self.low(F.max_pool3d(top, 2)), scale_factor=2, mode="nearest")
        return self.out(self.merge(torch.cat([top, low], 1)))


def dice_ce(logits, target):
    p = logits.sigmoid()
    dice = 1 - (2 * (p * target).sum() + 1) / (p.sum() + target.sum() + 1)
    return dice + F.binary_cross_entropy_with_logits(logits, target)


def losses(model, opt, stream):
    for i, (x, y) in enumerate(stream, 1):
        loss = dice_ce(model(x), y) / ACCUMULATE
        loss.backward()
        if i % ACCUMULATE == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 12.0)
            opt.step()
            opt.zero_grad()
        yield loss.item()


def main():
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(9)
    scans = [scan(g) for _ in range(SCANS)]
    model = Segmenter()
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.99, nesterov=True)
    run = losses(model, opt, flipped(batched(patches(scans, g), BATCH), g))
    for _ in itertools.islice(run, WARMUP):
        pass
    start = time.perf_counter()
    history = list(itertools.islice(run, STEPS - WARMUP))
    print(f"{len(history) * BATCH / (time.perf_counter() - start):.1f} samples/s")


if __name__ == "__main__":
    main()
