# /// clinic
# expect = ["PD02.channels-last"]
# stratum = "twins"
# domain = "pictures of tulips"
# ///
"""Tulip sorter: which of eight kinds of tulip is on the picture? Small ConvNeXt from scratch.

Block after Liu et al. 2022 (A ConvNet for the 2020s), shrunk until it fits a laptop.
"""

import time
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--bs", type=int, default=32)
    p.add_argument("--epochs", type=int, default=9)
    p.add_argument("--pictures", type=int, default=3200)
    p.add_argument("--size", type=int, default=64)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--seed", type=int, default=5)
    return p.parse_args()


# ---- pictures -------------------------------------------------------------
KINDS = [  # petals, roundness, colour
    (3, 0.5, (220, 40, 50)),
    (3, 0.9, (220, 40, 50)),
    (5, 0.5, (230, 190, 40)),
    (5, 0.9, (230, 190, 40)),
    (6, 0.5, (170, 60, 180)),
    (6, 0.9, (170, 60, 180)),
    (4, 0.7, (240, 120, 150)),
    (7, 0.7, (240, 120, 150)),
]


def draw(n, size, rng):
    yy, xx = np.mgrid[0:size, 0:size].astype(np.float32) / size - 0.5
    pics = np.empty((n, 3, size, size), np.uint8)
    kinds = rng.integers(0, len(KINDS), n)
    for i, k in enumerate(kinds):
        petals, round_, colour = KINDS[k]
        cx, cy = rng.uniform(-0.15, 0.15, 2)
        r = np.hypot(xx - cx, yy - cy)
        a = np.arctan2(yy - cy, xx - cx) + rng.uniform(0, 6.28)
        edge = rng.uniform(0.2, 0.32) * (round_ + (1 - round_) * np.cos(petals * a))
        mask = 1 / (1 + np.exp((r - edge) * 60))
        ground = rng.uniform(40, 120, 3)
        tint = np.array(colour) * rng.uniform(0.7, 1.1)
        img = ground[:, None, None] * (1 - mask) + tint[:, None, None] * mask
        img = img + rng.standard_normal(img.shape) * 22
        pics[i] = img.clip(0, 255)
    return torch.from_numpy(pics), torch.from_numpy(kinds)


# ---- network --------------------------------------------------------------
class Block(nn.Module):
    def __init__(self, dim, scale=1e-1):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, kernel_size=7, padding=3, groups=dim)  # depthwise
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.pw1 = nn.Linear(dim, 3 * dim)
        self.pw2 = nn.Linear(3 * dim, dim)
        self.gamma = nn.Parameter(scale * torch.ones(dim))

    def forward(self, x):
        y = self.dwconv(x).permute(0, 2, 3, 1)  # N C H W -> N H W C
        y = self.pw2(F.gelu(self.pw1(self.norm(y)), approximate="tanh"))
        return x + (self.gamma * y).permute(0, 3, 1, 2)


class Sorter(nn.Module):
    def __init__(self, n_kinds, dims=(32, 64), depths=(2, 3)):
        super().__init__()
        self.stem = nn.Conv2d(3, dims[0], 4, stride=4)
        self.stage1 = nn.Sequential(*[Block(dims[0]) for _ in range(depths[0])])
        self.down = nn.Conv2d(dims[0], dims[1], 2, stride=2)
        self.stage2 = nn.Sequential(*[Block(dims[1]) for _ in range(depths[1])])
        self.norm = nn.LayerNorm(dims[1])
        self.head = nn.Linear(dims[1], n_kinds)
        self.apply(self._init)

    @staticmethod
    def _init(m):
        if isinstance(m, (nn.Conv2d, nn.Linear)):
            nn.init.trunc_normal_(m.weight, std=0.05)
            nn.init.zeros_(m.bias)

    def forward(self, x):
        x = self.stage1(self.stem(x))
        x = self.stage2(self.down(x))
        return self.head(self.norm(x.mean([-2, -1])))


MEAN = torch.tensor([110.0, 90.0, 90.0]).view(1, 3, 1, 1)


def prepare(pics):
    x = (pics.float() - MEAN) / 60.0
    x = x.contiguous(memory_format=torch.channels_last)  # well
    return x


@torch.no_grad()
def evaluate(net, pics, kinds):
    net.eval()
    right = sum((net(prepare(p)).argmax(1) == k).sum().item() for p, k in zip(pics.split(64), kinds.split(64)))
    net.train()
    return right / len(kinds)


def run(args):
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    pics, kinds = draw(args.pictures, args.size, rng)
    val_pics, val_kinds = draw(256, args.size, rng)

    net = Sorter(len(KINDS))  # here
    net = net.to(memory_format=torch.channels_last)  # well
    opt = torch.optim.AdamW(net.parameters(), lr=args.lr, weight_decay=0.05)
    per_epoch = len(pics) // args.bs
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.epochs * per_epoch)

    n = 0
    tic = time.perf_counter()
    for ep in range(args.epochs):
        order = torch.randperm(len(pics))
        losses = 0.0
        for b in range(per_epoch):
            idx = order[b * args.bs : (b + 1) * args.bs]
            x, t = pics[idx], kinds[idx]
            if torch.rand(()) < 0.5:
                x = x.flip(-1)
            loss = F.cross_entropy(net(prepare(x)), t)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            opt.step()
            sched.step()
            losses += loss.item()
            n += len(t)
        print(f"[{ep + 1}/{args.epochs}] loss {losses / per_epoch:.4f}")
    toc = time.perf_counter()
    print("val acc", evaluate(net, val_pics, val_kinds))
    print(f"{n / (toc - tic):.1f} samples/s")


if __name__ == "__main__":
    run(get_args())
