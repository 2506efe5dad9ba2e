# /// clinic
# expect = ["PD13"]
# stratum = "twins"
# domain = "distillation (DistributedDataParallel, gloo)"
# ///
"""Distil a frozen teacher into a small student on synthetic glyphs with two ranks."""

import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

WORLD = 2
GLYPHS = 4000
SIDE = 28
CLASSES = 20
BATCH = 64
STEPS = 150
WARMUP = 20
SOFTEN = 3.0


def glyphs(rank):
    g = torch.Generator().manual_seed(100)
    templates = F.interpolate(torch.randn(CLASSES, 1, 7, 7, generator=g), size=SIDE, mode="bicubic")
    g.manual_seed(rank)
    labels = torch.randint(CLASSES, (GLYPHS,), generator=g)
    return templates[labels] + 0.3 * torch.randn(GLYPHS, 1, SIDE, SIDE, generator=g), labels


def stage(cin, cout):
    return [nn.Conv2d(cin, cout, 3, padding=1), nn.GroupNorm(4, cout), nn.ReLU(), nn.MaxPool2d(2)]


def network(widths):
    layers, cin = [], 1
    for w in widths:
        layers += stage(cin, w)
        cin = w
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(cin * (SIDE >> len(widths)) ** 2, CLASSES))


def distil_loss(student, teacher, labels):
    soft = F.kl_div(F.log_softmax(student / SOFTEN, -1), F.softmax(teacher / SOFTEN, -1), reduction="batchmean")
    return 0.7 * SOFTEN**2 * soft + 0.3 * F.cross_entropy(student, labels)


def setup(rank, world):
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(rank)
    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(cores)  # sick here
    torch.set_num_threads(max(1, cores // world))  # well


def worker(rank, world):
    setup(rank, world)
    images, labels = glyphs(rank)
    teacher = network([32, 64, 64]).eval().requires_grad_(False)
    student = DDP(network([16, 32, 32]))
    opt = torch.optim.SGD(student.parameters(), lr=0.02, momentum=0.9, nesterov=True)
    for step in range(STEPS):
        if step == WARMUP:
            dist.barrier()
            start = time.perf_counter()
        idx = torch.randint(GLYPHS, (BATCH,))
        x, y = images[idx], labels[idx]
        with torch.no_grad():
            target = teacher(x)
        loss = distil_loss(student(x), target, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    dist.barrier()
    if rank == 0:
        print(f"{(STEPS - WARMUP) * BATCH * world / (time.perf_counter() - start):.1f} samples/s")
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    if "RANK" in os.environ:
        worker(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    else:
        os.environ["MASTER_ADDR"] = "127.0.0.1"
        os.environ["MASTER_PORT"] = str(free_port())
        mp.spawn(worker, args=(WORLD,), nprocs=WORLD)
