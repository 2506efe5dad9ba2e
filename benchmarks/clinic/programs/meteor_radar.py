# /// clinic
# expect = ["PD13.pinned-process"]
# stratum = "twins"
# domain = "meteor radar echo classification"
# ///
"""Meteor radar: tell underdense trails, overdense trails, aircraft and clutter apart.

Five antennas, I and Q each, 512 pulses per echo.  Two ranks, each of which owns
the echoes of one receiver station, train one network with DDP over gloo.
"""

import argparse
import math
import os
import socket
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

KINDS = ("underdense", "overdense", "aircraft", "clutter")
ANTENNAS, PULSES = 5, 512


def simulate_station(count, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(PULSES) / PULSES
    kind = rng.integers(0, len(KINDS), count)
    echoes = np.empty((count, 2 * ANTENNAS, PULSES), dtype=np.float32)
    for i, k in enumerate(kind):
        start = rng.uniform(0.05, 0.4)
        after = np.clip(t - start, 0, None)
        rise = 1 / (1 + np.exp(-(t - start) * 120))
        doppler = rng.normal(0, 12)
        if k == 0:
            power = rise * np.exp(-after * rng.uniform(6, 25))
        elif k == 1:
            power = rise * np.sqrt(np.clip(1 - after / rng.uniform(0.3, 0.6), 0, None))
            power = power * (1 + 0.4 * np.sin(2 * math.pi * rng.uniform(3, 8) * t))
        elif k == 2:
            power = np.full(PULSES, rng.uniform(0.3, 0.8))
            doppler = rng.normal(0, 12) + 30 * t
        else:
            power = np.abs(rng.normal(0, 0.5)) * (rng.random(PULSES) < 0.1)
        phase = 2 * math.pi * (doppler * t)[None] + rng.uniform(0, 6.3, (ANTENNAS, 1))
        noise = rng.normal(0, 0.35, (2, ANTENNAS, PULSES))
        echoes[i, :ANTENNAS] = power * np.cos(phase) + noise[0]
        echoes[i, ANTENNAS:] = power * np.sin(phase) + noise[1]
    return torch.from_numpy(echoes), torch.from_numpy(kind)


class Residual(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.conv1 = nn.Conv1d(width, width, 5, padding=2 * dilation, dilation=dilation)
        self.conv2 = nn.Conv1d(width, width, 1)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x):
        return x + self.conv2(F.relu(self.norm(self.conv1(x))))


class EchoNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.stem = nn.Conv1d(2 * ANTENNAS, width, 9, stride=4, padding=4)
        self.blocks = nn.Sequential(*[Residual(width, d) for d in (1, 2, 4)])
        self.head = nn.Sequential(nn.Linear(2 * width, 64), nn.ReLU(), nn.Linear(64, len(KINDS)))

    def forward(self, x):
        x = self.blocks(F.relu(self.stem(x)))
        return self.head(torch.cat([x.mean(-1), x.amax(-1)], dim=-1))


def bind_to_cores(rank, world_size):
    """Give the process its own share of the cores that the job may use."""
    local_rank = int(os.environ.get("LOCAL_RANK", 0))  # sick here
    local_rank = rank  # well
    cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) // world_size)
    mine = cores[local_rank * share : (local_rank + 1) * share]
    os.sched_setaffinity(0, mine)  # here
    torch.set_num_threads(len(mine))


def setup(rank, world_size, port):
    bind_to_cores(rank, world_size)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world_size)
    torch.manual_seed(17)


def accuracy(model, echoes, kind):
    model.eval()
    with torch.inference_mode():
        right = sum((model(x).argmax(-1) == y).sum() for x, y in zip(echoes.split(128), kind.split(128)))
    model.train()
    score = torch.tensor([float(right), float(len(kind))])
    dist.all_reduce(score)
    return (score[0] / score[1]).item()


def run(rank, world_size, port, args):
    setup(rank, world_size, port)
    echoes, kind = simulate_station(args.echoes + 256, seed=100 + rank)
    train_x, train_y = echoes[:-256], kind[:-256]
    held_x, held_y = echoes[-256:], kind[-256:]
    model = DistributedDataParallel(EchoNet(), gradient_as_bucket_view=True)
    opt = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    steps = args.epochs * (args.echoes // args.batch)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps)
    gen = torch.Generator().manual_seed(rank)
    dist.barrier()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = torch.zeros(())
        for rows in torch.randperm(args.echoes, generator=gen).split(args.batch):
            x, y = train_x[rows], train_y[rows]
            loss = F.cross_entropy(model(x), y, label_smoothing=0.05)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            sched.step()
            total += loss.detach()
        score = accuracy(model.module, held_x, held_y)
        if rank == 0:
            print(
                f"epoch {epoch:2d}  loss {total / (args.echoes // args.batch):.3f}  held-out accuracy {score:.3f}",
                flush=True,
            )
    dist.barrier()
    if rank == 0:
        print(f"training seconds: {time.perf_counter() - begin:.1f}")
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=17)
    parser.add_argument("--echoes", type=int, default=2048, help="per station")
    parser.add_argument("--batch", type=int, default=64, help="per rank")
    parser.add_argument("--lr", type=float, default=0.03)
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    mp.spawn(run, args=(options.ranks, free_port(), options), nprocs=options.ranks)
