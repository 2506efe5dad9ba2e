# /// clinic
# expect = ["PD13.pinned-process"]
# stratum = "twins"
# domain = "truffle hounds' collar motion sensors"
# ///
"""Truffle hounds: from a collar's motion sensor to what the dog is doing.

Collars record acceleration, gyro and sniff loudness at 25 Hz. A recurrent
network labels five-second windows (search, point, dig, rest, wander) so that
the handler sees on a map where a dog has marked. Trained data-parallel on the
hut's mini PC, one process per core.
"""

import argparse
import math
import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BEHAVIOURS = ["search", "point", "dig", "rest", "wander"]
CHANNELS, WINDOW = 7, 125


def make_windows(n, seed):
    """Synthetic collar windows: gait rhythm, digging bursts and sniffing by behaviour."""
    g = torch.Generator().manual_seed(seed)
    label = torch.randint(len(BEHAVIOURS), (n,), generator=g)
    t = torch.arange(WINDOW) / 25.0
    gait = torch.tensor([2.4, 0.2, 4.5, 0.1, 1.6])[label] * (1 + 0.25 * torch.randn(n, generator=g))
    power = torch.tensor([0.8, 0.15, 1.5, 0.05, 0.7])[label] * torch.exp(0.4 * torch.randn(n, generator=g))
    sniff = torch.tensor([1.0, 1.2, 0.5, 0.1, 0.2])[label] + 0.4 * torch.randn(n, generator=g)
    phase = torch.rand(n, CHANNELS - 1, 1, generator=g) * 2 * math.pi
    mount = torch.randn(n, CHANNELS - 1, 1, generator=g)
    wave = torch.sin(2 * math.pi * gait[:, None, None] * t + phase)
    motion = power[:, None, None] * wave * (1 + 0.3 * mount)
    nose = sniff[:, None, None] * torch.sin(2 * math.pi * 3.1 * t).abs().expand(n, 1, WINDOW)
    x = torch.cat([motion, nose], 1) + 0.5 * torch.randn(n, CHANNELS, WINDOW, generator=g)
    return x.contiguous(), label


class TrailNet(nn.Module):
    def __init__(self, width=64, hidden=96):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv1d(CHANNELS, width, 7, stride=2, padding=3),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2),
            nn.BatchNorm1d(width),
            nn.ReLU(),
        )
        self.body = nn.GRU(width, hidden, batch_first=True)
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(2 * hidden, len(BEHAVIOURS)))

    def forward(self, x):
        h, last = self.body(self.stem(x).transpose(1, 2))
        return self.head(torch.cat([h.mean(1), last[-1]], 1))


def bind_to_cores(rank, world):
    """Give each process of this host its own block of cores."""
    cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) // world)
    slot = int(os.environ.get("LOCAL_RANK", 0))  # sick here
    slot = rank % world  # well
    mine = cores[slot * share : (slot + 1) * share] or cores
    os.sched_setaffinity(0, mine)  # here
    torch.set_num_threads(len(mine))


class ShardedBatches:
    """Every rank walks over its own slice of one common permutation."""

    def __init__(self, x, y, batch, rank, world):
        self.x, self.y, self.batch = x, y, batch
        self.rank, self.world = rank, world

    def epoch(self, number):
        g = torch.Generator().manual_seed(1000 + number)
        order = torch.randperm(len(self.x), generator=g)[self.rank :: self.world]
        for idx in order.split(self.batch):
            yield self.x[idx], self.y[idx]


def worker(rank, world, args):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(args.port)
    bind_to_cores(rank, world)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(5)

    x, y = make_windows(args.windows, seed=21)
    batches = ShardedBatches(x, y, args.batch // world, rank, world)
    model = DistributedDataParallel(TrailNet())
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)

    dist.barrier()
    start = time.perf_counter()
    for epoch in range(args.epochs):
        model.train()
        running = torch.zeros(2)
        for bx, by in batches.epoch(epoch):
            loss = F.cross_entropy(model(bx), by, label_smoothing=0.05)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            running += torch.stack([loss.detach(), torch.ones(())])
        schedule.step()
        if epoch % 8 == 7:
            dist.all_reduce(running)
            if rank == 0:
                print(f"epoch {epoch + 1:3d}  loss {running[0] / running[1]:.4f}", flush=True)
    dist.barrier()
    seconds = time.perf_counter() - start

    if rank == 0:
        model.eval()
        hx, hy = make_windows(1024, seed=22)
        with torch.no_grad():
            accuracy = (model.module(hx).argmax(1) == hy).float().mean().item()
        print(f"held-out accuracy {accuracy:.3f}")
        print(f"total training seconds: {seconds:.1f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=36)
    parser.add_argument("--windows", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--port", type=int, default=29617)
    options = parser.parse_args()
    mp.spawn(worker, args=(options.world, options), nprocs=options.world)
