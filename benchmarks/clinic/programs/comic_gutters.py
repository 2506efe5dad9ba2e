# /// clinic
# expect = ["PD13.pinned-process"]
# stratum = "twins"
# domain = "gutters in comic strips"
# ///
"""Find the gutters in comic strips.

Pages are drawn at random (panels, balloons, hatching, paper grain); a small encoder-decoder marks
which pixels belong to the gutter between two panels. Trains on two processes of one machine:

    python strips.py --epochs 8
"""

import argparse
import os
import socket
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SIDE = 64


def draw_page(rng):
    """One strip page: rows of panels with crooked borders, some bleeding into the margin."""
    paper = int(rng.integers(200, 256))
    page = Image.new("L", (SIDE, SIDE), paper)
    mask = Image.new("L", (SIDE, SIDE), 255)
    pen, stencil = ImageDraw.Draw(page), ImageDraw.Draw(mask)
    gap = int(rng.integers(2, 5))
    rows = int(rng.integers(2, 4))
    cuts = np.linspace(gap, SIDE, rows + 1).astype(int)
    for top, bottom in zip(cuts[:-1], cuts[1:]):
        columns = int(rng.integers(1, 4))
        edges = np.linspace(gap, SIDE, columns + 1) + rng.integers(-3, 4, columns + 1)
        edges[0], edges[-1] = gap, SIDE
        for left, right in zip(edges[:-1], edges[1:]):
            box = [int(left), int(top), int(right) - gap, int(bottom) - gap]
            shade = int(rng.integers(60, 250))
            pen.rectangle(box, fill=shade, outline=int(rng.integers(0, 90)) if rng.random() < 0.8 else shade)
            stencil.rectangle(box, fill=0)
            for _ in range(int(rng.integers(2, 6))):
                x, y = rng.integers(box[0], box[2] + 1), rng.integers(box[1], box[3] + 1)
                reach = int(rng.integers(2, 9))
                corner = [
                    max(x - reach, box[0]),
                    max(y - reach, box[1]),
                    min(x + reach, box[2]),
                    min(y + reach, box[3]),
                ]
                corner = [int(c) for c in corner]
                if rng.random() < 0.5:
                    pen.ellipse(corner, fill=int(rng.integers(0, 256)))
                else:
                    pen.line(corner, fill=int(rng.integers(0, 256)), width=int(rng.integers(1, 4)))
    grain = rng.normal(0, 9, (SIDE, SIDE))
    return np.clip(np.asarray(page) + grain, 0, 255).astype(np.float32) / 255, np.asarray(mask) // 255


def draw_book(pages, seed):
    rng = np.random.default_rng(seed)
    drawn = [draw_page(rng) for _ in range(pages)]
    images = torch.from_numpy(np.stack([image for image, _ in drawn])).unsqueeze(1)
    masks = torch.from_numpy(np.stack([mask for _, mask in drawn])).float().unsqueeze(1)
    return TensorDataset(images, masks)


def block(inner, outer, stride=1):
    return nn.Sequential(
        nn.Conv2d(inner, outer, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(outer),
        nn.ReLU(inplace=True),
    )


class GutterNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.stem = block(1, width)
        self.down = nn.Sequential(block(width, 2 * width, 2), block(2 * width, 2 * width))
        self.deep = nn.Sequential(block(2 * width, 4 * width, 2), block(4 * width, 4 * width))
        self.up = block(6 * width, 2 * width)
        self.out = nn.Conv2d(3 * width, 1, 3, padding=1)

    def forward(self, page):
        fine = self.stem(page)
        half = self.down(fine)
        deep = F.interpolate(self.deep(half), scale_factor=2.0, mode="nearest")
        half = F.interpolate(self.up(torch.cat([half, deep], 1)), scale_factor=2.0, mode="nearest")
        return self.out(torch.cat([fine, half], 1))


def setup(rank, world, port):
    """Join the group and give this process its own part of the machine."""
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    cores = sorted(os.sched_getaffinity(0))
    share = len(cores) // world
    first = int(os.environ.get("LOCAL_RANK", 0)) * share  # sick here
    first = rank * share  # well
    mine = cores[first : first + share]
    os.sched_setaffinity(0, mine)  # here
    torch.set_num_threads(len(mine))


def train(rank, world, port, options):
    setup(rank, world, port)
    torch.manual_seed(options.seed)
    book = draw_book(options.pages, seed=options.seed)
    sampler = DistributedSampler(book, world, rank, shuffle=True, drop_last=True)
    loader = DataLoader(book, batch_size=options.batch, sampler=sampler, drop_last=True)

    model = DistributedDataParallel(GutterNet().to(memory_format=torch.channels_last))
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=1e-3)
    steps = options.epochs * len(loader)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, options.lr, total_steps=steps)
    weight = torch.tensor(2.0)

    dist.barrier()
    start = time.perf_counter()
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        model.train()
        summed = torch.zeros(2)
        for images, masks in loader:
            logits = model(images.contiguous(memory_format=torch.channels_last))
            loss = F.binary_cross_entropy_with_logits(logits, masks, pos_weight=weight)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            summed += torch.tensor([loss.detach(), 1.0])
        dist.all_reduce(summed)
        if rank == 0:
            print(f"epoch {epoch + 1:2d}: loss {summed[0] / summed[1]:.4f}", flush=True)
    seconds = time.perf_counter() - start

    if rank == 0:
        images, masks = draw_book(128, seed=options.seed + 1).tensors
        model.eval()
        with torch.inference_mode():
            found = model.module(images) > 0
        overlap = (found & (masks > 0)).sum() / (found | (masks > 0)).sum()
        print(f"gutter IoU on unseen pages: {overlap:.3f}")
        print(f"total training seconds: {seconds:.1f}")
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--pages", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=3)
    options = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(train, args=(2, port, options), nprocs=2)


if __name__ == "__main__":
    main()
