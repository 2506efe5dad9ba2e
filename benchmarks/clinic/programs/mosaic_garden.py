# /// clinic
# expect = ["PD10.repeated-work", "PD10.same-result"]
# stratum = "twins"
# domain = "layouts of mosaics"
# ///
"""Prototype: does the layout of a mosaic survive in an embedding that was never told about layouts?

Mosaics are small pictures laid from coloured tiles.  The hidden class of a mosaic is the pattern its tiles follow, while its
palette is drawn anew for each picture.  An encoder is trained on pairs of altered views with the alignment and uniformity terms
of Wang and Isola, each of which can be switched off, and judged by its nearest neighbours on the sphere.
"""

import math
import time

import torch
from torch import nn
from torch.nn import functional as F

SEED = 11
SIDE, TILE = 24, 4
PATTERNS = 8
PICTURES, HELD_OUT = 3072, 512
BATCH = 64
STEPS = 130
WIDTH = 32
DIM = 64

USE_UNIFORMITY = True  # ablation: pull only
USE_OCCLUSION = True  # ablation: no missing tiles in the views
SHARPNESS = 2.0


def pattern_of(kind, rows, cols):
    """Which of three palette colours a tile gets, for one of the eight ways to lay a floor."""
    if kind == 0:
        return (rows + cols) % 2
    if kind == 1:
        return rows % 3
    if kind == 2:
        return cols % 3
    if kind == 3:
        return torch.maximum((rows - 2.5).abs(), (cols - 2.5).abs()).long() % 3
    if kind == 4:
        return (rows + cols) % 3
    if kind == 5:
        return (rows // 2 + cols // 2) % 2
    if kind == 6:
        return ((rows - 2.5) * (cols - 2.5) > 0).long()
    return ((rows - cols).abs() < 2).long() * 2


def lay_mosaics(n, generator):
    per_side = SIDE // TILE
    rows, cols = torch.meshgrid(torch.arange(per_side), torch.arange(per_side), indexing="ij")
    plans = torch.stack([pattern_of(k, rows, cols) for k in range(PATTERNS)])
    kinds = torch.randint(PATTERNS, (n,), generator=generator)
    palettes = torch.rand(n, 3, 3, generator=generator)
    tiles = palettes[torch.arange(n)[:, None, None], plans[kinds]]
    tiles = tiles + 0.08 * torch.randn(tiles.shape, generator=generator)
    pictures = tiles.permute(0, 3, 1, 2).repeat_interleave(TILE, 2).repeat_interleave(TILE, 3)
    grout = torch.ones(SIDE)
    grout[::TILE] = 0.7
    pictures = pictures * grout[:, None] * grout[None, :]
    return (pictures - 0.5) * 2, kinds


def wander(pictures):
    """One altered view per picture: a small turn, zoom and shift, another light, and a patch that has come off."""
    n = len(pictures)
    angle = (torch.rand(n) - 0.5) * 0.5
    zoom = 0.8 + 0.3 * torch.rand(n)
    shift = (torch.rand(n, 2) - 0.5) * 0.3
    cos, sin = angle.cos() * zoom, angle.sin() * zoom
    theta = torch.stack([torch.stack([cos, -sin, shift[:, 0]], 1), torch.stack([sin, cos, shift[:, 1]], 1)], 1)
    grid = F.affine_grid(theta, list(pictures.shape), align_corners=False)
    view = F.grid_sample(pictures, grid, padding_mode="reflection", align_corners=False)
    view = view * (0.6 + 0.8 * torch.rand(n, 3, 1, 1)) + 0.3 * torch.randn(n, 3, 1, 1)
    if USE_OCCLUSION:
        at = torch.rand(n, 2) * (SIDE - 8)
        axis = torch.arange(SIDE)
        in_rows = (axis >= at[:, :1]) & (axis < at[:, :1] + 8)
        in_cols = (axis >= at[:, 1:]) & (axis < at[:, 1:] + 8)
        view = view.masked_fill((in_rows[:, :, None] & in_cols[:, None, :])[:, None], 0.0)
    return view


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()

        def block(a, b, stride):
            return nn.Sequential(nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True))

        self.body = nn.Sequential(
            block(3, WIDTH, 1),
            block(WIDTH, 2 * WIDTH, 2),
            block(2 * WIDTH, 2 * WIDTH, 1),
            block(2 * WIDTH, 4 * WIDTH, 2),
        )
        self.head = nn.Sequential(nn.Linear(4 * WIDTH * 9, 128), nn.ReLU(inplace=True), nn.Linear(128, DIM))

    def forward(self, x):
        x = F.avg_pool2d(self.body(x), 2)
        return F.normalize(self.head(x.flatten(1)), dim=1)


def alignment(a, b):
    return (a - b).square().sum(1).mean()


def uniformity(z):
    return torch.pdist(z).square().mul(-SHARPNESS).exp().mean().log()


@torch.no_grad()
def neighbours_agree(net, bank, bank_kinds, probe, probe_kinds, k=10):
    """Share of held-out mosaics whose k nearest neighbours in the bank vote for the right pattern."""
    net.eval()
    known = torch.cat([net(part) for part in bank.split(256)])
    asked = torch.cat([net(part) for part in probe.split(256)])
    closeness, who = (asked @ known.T).topk(k, dim=1)
    votes = torch.zeros(len(probe), PATTERNS)
    votes.scatter_add_(1, bank_kinds[who], (closeness / 0.1).exp())
    return (votes.argmax(1) == probe_kinds).float().mean().item()


def main():
    torch.manual_seed(SEED)
    g = torch.Generator().manual_seed(SEED)
    pictures, kinds = lay_mosaics(PICTURES, g)
    probe, probe_kinds = lay_mosaics(HELD_OUT, g)
    net = Encoder()
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: 0.5 + 0.5 * math.cos(math.pi * s / STEPS))
    order = torch.randperm(PICTURES)
    at = 0
    net.train()
    began = time.perf_counter()
    for _ in range(STEPS):
        if at + BATCH > PICTURES:
            order, at = torch.randperm(PICTURES), 0
        x = pictures[order[at : at + BATCH]]
        at += BATCH
        va, vb = wander(x), wander(x)
        za, zb = net(va), net(vb)  # well
        loss = alignment(za, zb)  # well
        loss = alignment(net(va), net(vb))  # sick
        if USE_UNIFORMITY:
            loss = loss + 0.5 * (uniformity(za) + uniformity(zb))  # well
            loss = loss + 0.5 * (uniformity(net(va)) + uniformity(net(vb)))  # sick here
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    took = time.perf_counter() - began
    share = neighbours_agree(net, pictures, kinds, probe, probe_kinds)
    print(f"final loss {loss.item():.3f}, neighbours agree on {share:.1%} (chance {1 / PATTERNS:.1%})")
    print(f"{STEPS * BATCH / took:.1f} samples/s")


if __name__ == "__main__":
    main()
