# /// clinic
# expect = ["PD19.accumulation-without-no-sync"]
# stratum = "twins"
# domain = "tidal mill gate schedules"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""Gate schedules of a tidal mill, learned from past tides.

From two days of sea and pond levels the net proposes the next day's gate setting for each half hour: closed, filling,
milling or spilling. Run with torchrun --nproc-per-node 2 (gloo).
"""

import argparse
import os
import time
from contextlib import nullcontext

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

PAST, AHEAD, SETTINGS = 96, 48, 4
# period in hours and amplitude in metres of M2, S2, N2, K1, O1
CONSTITUENTS = [(12.42, 1.9), (12.0, 0.6), (12.66, 0.35), (23.93, 0.12), (25.82, 0.1)]


def run_mill(n, seed):
    """Simulates the pond for n windows: the miller fills on the flood, mills on the ebb, spills when too high."""
    rng = np.random.default_rng(seed)
    hours = rng.uniform(0, 9000, (n, 1)) + 0.5 * np.arange(PAST + AHEAD)
    sea = sum(a * np.cos(2 * np.pi * hours / p) for p, a in CONSTITUENTS)
    surge = np.cumsum(rng.normal(0, 0.03, sea.shape), 1)
    sea = sea + surge + rng.normal(0, 0.02, sea.shape)
    sill = rng.normal(0.4, 0.1, n)
    head = rng.normal(0.9, 0.1, n)
    pond = np.empty_like(sea)
    gate = np.empty(sea.shape, dtype=np.int64)
    level = rng.uniform(0.2, 1.2, n)
    for t in range(PAST + AHEAD):
        fill = (sea[:, t] > level) & (sea[:, t] > sill)
        mill = ~fill & (level - sea[:, t] > head) & (level > 0.2)
        spill = level > 2.0
        gate[:, t] = np.where(spill, 3, np.where(mill, 2, np.where(fill, 1, 0)))
        inflow = fill * 0.35 * (sea[:, t] - level) - mill * 0.12 - spill * 0.2 + 0.004
        level = level + inflow
        pond[:, t] = level
    past = np.stack([sea[:, :PAST], pond[:, :PAST], gate[:, :PAST] / 3.0], 1).reshape(n, -1)
    moon = np.stack([f(2 * np.pi * hours[:, PAST] / (29.53 * 24)) for f in (np.cos, np.sin)], 1)
    x = np.concatenate([past, moon, sill[:, None], head[:, None]], 1)
    return TensorDataset(torch.tensor(x, dtype=torch.float32), torch.from_numpy(gate[:, PAST:].copy()))


class Residual(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, width)
        self.down = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return x + self.down(self.dropout(F.gelu(self.up(self.norm(x)))))


class GateNet(nn.Module):
    def __init__(self, features, width=448, depth=3, dropout=0.1):
        super().__init__()
        self.lift = nn.Linear(features, width)
        self.blocks = nn.Sequential(*[Residual(width, dropout) for _ in range(depth)])
        self.out = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, AHEAD * SETTINGS))

    def forward(self, x):
        return self.out(self.blocks(self.lift(x))).view(len(x), SETTINGS, AHEAD)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    tally = torch.zeros(3, dtype=torch.float64)
    for x, gate in loader:
        logits = model.module(x)
        tally[0] += F.cross_entropy(logits, gate, reduction="sum")
        tally[1] += (logits.argmax(1) == gate).sum()
        tally[2] += gate.numel()
    dist.all_reduce(tally)
    model.train()
    return (tally[0] / tally[2]).item(), (tally[1] / tally[2]).item()


def train(args):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(args.seed)

    train_set, val_set = run_mill(args.windows, 1), run_mill(768, 2)
    sampler = DistributedSampler(train_set, shuffle=True, seed=args.seed, drop_last=True)
    loader = DataLoader(train_set, batch_size=args.micro_batch, sampler=sampler, drop_last=True)
    val_loader = DataLoader(val_set, batch_size=128, sampler=DistributedSampler(val_set, shuffle=False))

    model = DDP(GateNet(train_set.tensors[0].shape[1]), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    updates = args.epochs * (len(loader) // args.accumulate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=updates)
    weight = torch.tensor([0.7, 1.0, 1.2, 1.5])

    seen = 0
    dist.barrier()
    began = time.perf_counter()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        running = 0.0
        for i, (x, gate) in enumerate(loader):
            update = (i + 1) % args.accumulate == 0
            with nullcontext() if update else model.no_sync():  # well
                loss = F.cross_entropy(model(x), gate, weight=weight)  # well
                (loss / args.accumulate).backward()  # well
            loss = F.cross_entropy(model(x), gate, weight=weight)  # sick
            (loss / args.accumulate).backward()  # sick here
            running += loss.item()
            seen += len(x) * world
            if update:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                schedule.step()
        val_loss, val_acc = validate(model, val_loader)
        if rank == 0:
            print(f"epoch {epoch:2d}  train {running / len(loader):.4f}  val {val_loss:.4f}  right {val_acc:.3f}")
            torch.save(model.module.state_dict(), os.path.join(args.out, "gates.pt"))
    rate = seen / (time.perf_counter() - began)
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        print(f"{rate:.1f} windows/s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=6144)
    parser.add_argument("--micro-batch", type=int, default=32)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--out", default=".")
    train(parser.parse_args())
