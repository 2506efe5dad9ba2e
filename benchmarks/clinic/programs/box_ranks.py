# /// clinic
# expect = ["PD19"]
# stratum = "twins"
# domain = "detection"
# ///
"""Train a one-shot detector of squares on two processes."""

import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn

RANKS = 2
SIDE = 48
CELLS = 12
BATCH = 4
DEPTH = 24
WIDTH = 24
STEPS = 400


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(4, width)
        self.two = nn.Conv2d(width, width, 1, bias=False)
        self.norm2 = nn.GroupNorm(4, width)

    def forward(self, x):
        return F.relu(x + self.norm2(self.two(F.relu(self.norm1(self.one(x))))))


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, 7, stride=4, padding=3)
        self.body = nn.Sequential(*[Residual(WIDTH) for _ in range(DEPTH)])
        self.head = nn.Conv2d(WIDTH, 5, 1)

    def forward(self, x):
        return self.head(self.body(self.stem(x)))


def scenes(gen):
    scale = SIDE // CELLS
    while True:
        images = 0.2 * torch.rand(BATCH, 3, SIDE, SIDE, generator=gen)
        goal = torch.zeros(BATCH, 5, CELLS, CELLS)
        spots = torch.randint(0, SIDE - 12, (BATCH, 2), generator=gen).tolist()
        sizes = torch.randint(6, 12, (BATCH,), generator=gen).tolist()
        for b, ((top, left), size) in enumerate(zip(spots, sizes)):
            images[b, :, top : top + size, left : left + size] += 0.7
            row, col = (top + size // 2) // scale, (left + size // 2) // scale
            goal[b, :, row, col] = torch.tensor([1.0, top / SIDE, left / SIDE, size / SIDE, size / SIDE])
        yield images, goal


def detection_loss(out, goal):
    there = goal[:, :1]
    found = F.binary_cross_entropy_with_logits(out[:, :1], there, pos_weight=torch.tensor(20.0))
    return found + 5 * ((out[:, 1:] - goal[:, 1:]).abs() * there).sum() / there.sum()


def average_gradients(model, ranks):
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    for g in grads:  # sick
        dist.all_reduce(g)  # sick here
        g.div_(ranks)  # sick
    flat = torch.cat([g.reshape(-1) for g in grads])  # well
    dist.all_reduce(flat)  # well
    parts = (flat / ranks).split([g.numel() for g in grads])  # well
    torch._foreach_copy_(grads, [p.view_as(g) for p, g in zip(parts, grads)])  # well


def worker(rank, meeting):
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Detector()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    source = scenes(torch.Generator().manual_seed(100 + rank))
    start = 0.0
    for step in range(1, STEPS + 1):
        images, goal = next(source)
        optimizer.zero_grad()
        detection_loss(model(images), goal).backward()
        average_gradients(model, RANKS)
        optimizer.step()
        if step == 20:
            start = time.perf_counter()
    if rank == 0:
        print(f"{(STEPS - 20) / (time.perf_counter() - start):.1f} steps/s")
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(worker, args=(os.path.join(folder, "meeting"),), nprocs=RANKS)
