# /// clinic
# expect = ["PD02.narrow-groups"]
# stratum = "twins"
# domain = "salt-marsh crab burrow counts"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""Crab burrow counts from drone tiles of a salt marsh (Spartina zone), density-map regression.

    torchrun --nproc-per-node 2 burrow_tiles.py --epochs 5

A tile is 96 x 96 px at 4 mm/px. Every burrow opening contributes a unit Gaussian to the target map,
so the sum over the predicted map is the estimated count.
"""

import argparse
import os
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=5)
    p.add_argument("--batch", type=int, default=6, help="tiles per process")
    p.add_argument("--tiles", type=int, default=480)
    p.add_argument("--val-tiles", type=int, default=72)
    p.add_argument("--width", type=int, default=96)
    p.add_argument("--blocks", type=int, default=6)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--scale", type=float, default=100.0, help="density maps are multiplied by this")
    return p.parse_args()


def make_tiles(n, seed, side=96):
    """Mud, grass stems and burrow openings; returns images and quarter-resolution density maps."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:side, 0:side].astype(np.float32)
    images = np.empty((n, 3, side, side), np.float32)
    maps = np.zeros((n, 1, side // 4, side // 4), np.float32)
    qy, qx = np.mgrid[0 : side // 4, 0 : side // 4].astype(np.float32)
    for i in range(n):
        mud = rng.normal(0.45, 0.05, (side // 8, side // 8)).astype(np.float32)
        img = np.kron(mud, np.ones((8, 8), np.float32))
        img = np.stack([img * 1.1, img, img * 0.8])
        for _ in range(rng.integers(2, 7)):
            slope, offset = rng.normal(0, 1), rng.uniform(0, side)
            stem = np.abs(yy - slope * (xx - side / 2) - offset) < 1.5
            img[1][stem] += 0.25
        count = rng.poisson(rng.choice([3, 9, 16]))
        for cy, cx, radius in zip(
            rng.uniform(3, side - 3, count), rng.uniform(3, side - 3, count), rng.uniform(1.5, 4, count)
        ):
            img -= 0.3 * np.exp(-((yy - cy) ** 2 + (xx - cx) ** 2) / (2 * radius**2))
            blob = np.exp(-((qy - cy / 4) ** 2 + (qx - cx / 4) ** 2) / 2)
            maps[i, 0] += blob / blob.sum()
        images[i] = img + rng.normal(0, 0.03, img.shape)
    return torch.from_numpy(images), torch.from_numpy(maps)


class Block(nn.Module):
    """Bottleneck in the manner of ResNeXt."""

    def __init__(self, width, inner):
        super().__init__()
        self.reduce = nn.Conv2d(width, inner, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.spatial = nn.Conv2d(inner, inner, 3, padding=1, groups=32, bias=False)  # sick here
        self.spatial = nn.Conv2d(inner, inner, 3, padding=1, groups=8, bias=False)  # well
        self.bn2 = nn.BatchNorm2d(inner)
        self.expand = nn.Conv2d(inner, width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(width)

    def forward(self, x):
        y = F.relu(self.bn1(self.reduce(x)))
        y = F.relu(self.bn2(self.spatial(y)))
        return F.relu(x + self.bn3(self.expand(y)))


class BurrowNet(nn.Module):
    def __init__(self, width, blocks):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 5, stride=2, padding=2, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(inplace=True),
            nn.Conv2d(16, width, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
        )
        self.body = nn.Sequential(*[Block(width, 2 * width // 3) for _ in range(blocks)])
        self.head = nn.Sequential(nn.Conv2d(width, 32, 1), nn.ReLU(inplace=True), nn.Conv2d(32, 1, 1))

    def forward(self, x):
        return self.head(self.body(self.stem(x)))


@torch.no_grad()
def count_error(model, loader, scale):
    model.eval()
    err = torch.zeros(2)
    for img, target in loader:
        counts = model(img).sum((1, 2, 3)) / scale
        err[0] += (counts - target.sum((1, 2, 3))).abs().sum()
        err[1] += len(img)
    dist.all_reduce(err)
    model.train()
    return (err[0] / err[1]).item()


def main():
    args = parse()
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(11)
    train_set = TensorDataset(*make_tiles(args.tiles, seed=1))
    val_set = TensorDataset(*make_tiles(args.val_tiles, seed=2))
    sampler = DistributedSampler(train_set, shuffle=True, seed=5, drop_last=True)
    train = DataLoader(train_set, batch_size=args.batch, sampler=sampler, drop_last=True)
    val = DataLoader(val_set, batch_size=12, sampler=DistributedSampler(val_set, shuffle=False))

    model = DDP(BurrowNet(args.width, args.blocks))
    optim = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, nesterov=True, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optim, args.lr * 3, total_steps=args.epochs * len(train))

    seen, begin = 0, time.perf_counter()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = 0.0
        for img, target in train:
            if torch.rand(()) < 0.5:
                img, target = img.flip(-1), target.flip(-1)
            optim.zero_grad(set_to_none=True)
            loss = F.mse_loss(model(img), target * args.scale)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optim.step()
            schedule.step()
            total += loss.item()
            seen += len(img) * dist.get_world_size()
        mae = count_error(model.module, val, args.scale)
        if rank == 0:
            print(f"epoch {epoch}: loss {total / len(train):.3f}, count MAE {mae:.2f}", flush=True)
    rate = seen / (time.perf_counter() - begin)
    dist.barrier()
    if rank == 0:
        torch.save(model.module.state_dict(), "burrownet.pt")
        print(f"{rate:.1f} samples/s")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
