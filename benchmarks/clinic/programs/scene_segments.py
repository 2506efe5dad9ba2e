# /// clinic
# expect = ["PD19"]
# stratum = "twins"
# domain = "semantic segmentation"
# ///
"""Trains a small encoder-decoder for semantic segmentation on two processes."""

import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WORLD = 2
CLASSES = 19
SIDE = 64
BATCH = 4
WIDTH = 12
POOL = 96
STEPS = 180
WARMUP = 20


def scenes(n, seed):
    g = torch.Generator().manual_seed(seed)
    coarse = torch.randint(CLASSES, (n, 1, 8, 8), generator=g).float()
    target = F.interpolate(coarse, size=SIDE).squeeze(1).long()
    colour = torch.randn(CLASSES, 3, generator=torch.Generator().manual_seed(0))
    image = colour[target].permute(0, 3, 1, 2) + 0.5 * torch.randn(n, 3, SIDE, SIDE, generator=g)
    return image.contiguous(), target


def unit(a, b, stride=1):
    return nn.Sequential(nn.Conv2d(a, b, 3, stride, 1), nn.GroupNorm(4, b), nn.ReLU(inplace=True))


class Segmenter(nn.Module):
    def __init__(self, w=WIDTH):
        super().__init__()
        self.stem = unit(3, w)
        self.down1 = unit(w, 2 * w, 2)
        self.down2 = unit(2 * w, 4 * w, 2)
        self.middle = unit(4 * w, 4 * w)
        self.up1 = unit(6 * w, 2 * w)
        self.up2 = unit(3 * w, w)
        self.head = nn.Conv2d(w, CLASSES, 1)

    def forward(self, x):
        a = self.stem(x)
        b = self.down1(a)
        c = self.middle(self.down2(b))
        b = self.up1(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        a = self.up2(torch.cat([F.interpolate(b, scale_factor=2), a], 1))
        return self.head(a)


class RunningIoU:
    def __init__(self):
        self.table = torch.zeros(CLASSES, CLASSES, dtype=torch.long)

    def count(self, logits, target):
        flat = target.flatten() * CLASSES + logits.argmax(1).flatten()
        return torch.bincount(flat, minlength=CLASSES * CLASSES).view(CLASSES, CLASSES)

    def update(self, logits, target):
        outputs = {"logits": logits.detach(), "target": target}  # sick
        gathered = [None] * dist.get_world_size()  # sick
        dist.all_gather_object(gathered, outputs)  # sick here
        for part in gathered:  # sick
            self.table += self.count(part["logits"], part["target"])  # sick
        table = self.count(logits.detach(), target)  # well
        dist.all_reduce(table)  # well
        self.table += table  # well

    def value(self):
        hit = self.table.diagonal()
        return (hit / (self.table.sum(0) + self.table.sum(1) - hit).clamp_min(1)).mean()


class Runner:
    def __init__(self, rank):
        torch.manual_seed(0)
        self.images, self.targets = scenes(POOL, 100 + rank)
        self.draw = torch.Generator().manual_seed(rank)
        self.net = DistributedDataParallel(Segmenter())
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3, fused=True)
        self.score = RunningIoU()

    def train_step(self):
        pick = torch.randint(POOL, (BATCH,), generator=self.draw)
        image, target = self.images[pick], self.targets[pick]
        logits = self.net(image)
        loss = F.cross_entropy(logits, target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.score.update(logits, target)


def worker(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    runner = Runner(rank)
    for step in range(WARMUP + STEPS):
        if step == WARMUP:
            began = time.perf_counter()
        runner.train_step()
    took = time.perf_counter() - began
    if rank == 0:
        print(f"{STEPS * BATCH * WORLD / took:.1f} samples/s")
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        free = s.getsockname()[1]
    mp.spawn(worker, (free,), nprocs=WORLD)
