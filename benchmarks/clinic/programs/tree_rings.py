# /// clinic
# expect = ["PD19.late-rank"]
# stratum = "twins"
# domain = "dendrochronology"
# ///
"""Tree-ring series to site class, on two ranks.

A series is what a dendrochronologist measures on one core: ring width, latewood share and
blue intensity, from the pith to the bark. Old trees give long series, young ones short.
A small transformer reads the rings and tells the kind of site the tree grew on. Data are
made up from a common climate and the way each kind of site answers to it.

    python tree_rings.py            starts its two ranks itself
"""

import argparse
import os
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SITES = ("valley", "bog", "scree", "timberline", "dune", "floodplain")
WORLD = 2
LAST_YEAR = 600


def measure(count, seed):
    """`count` cores as (rings x 3 table, site), rings counted from the pith."""
    climate = np.random.default_rng(1816)
    summer, rain = climate.normal(size=(2, LAST_YEAR))
    answer = climate.normal(size=(len(SITES), 3, 4)) * 0.35
    memory = climate.uniform(0.1, 0.7, size=len(SITES))
    rng = np.random.default_rng(seed)
    cores = []
    for _ in range(count):
        site = int(rng.integers(len(SITES)))
        rings = int(np.clip(rng.lognormal(3.9, 1.0), 16, 400))
        end = int(rng.integers(rings, LAST_YEAR))
        s, r = summer[end - rings : end], rain[end - rings : end]
        drive = np.stack([s, r, s * r, np.r_[0, s[:-1]]])
        signal = (answer[site] @ drive).T + rng.normal(size=(rings, 3)) * 0.6
        for k in range(1, rings):
            signal[k] += memory[site] * signal[k - 1] * 0.6
        signal[:, 0] += np.exp(-np.arange(rings) / 40)
        cores.append((torch.from_numpy(signal.astype(np.float32)), site))
    return cores


class Cores:
    """Batches of cores of about the same length, so that little of a batch is padding."""

    def __init__(self, cores, batch, rank, world):
        cores = sorted(cores, key=lambda core: len(core[0]))
        share = len(cores) // world
        self.cores = cores[rank * share : (rank + 1) * share]  # sick here
        self.cores = cores[rank : share * world : world]  # well
        self.batch = batch
        self.epoch = 0

    def __len__(self):
        return len(self.cores) // self.batch

    def __iter__(self):
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(self.epoch))
        self.epoch += 1
        for b in order.tolist():
            chosen = self.cores[b * self.batch : (b + 1) * self.batch]
            rings = nn.utils.rnn.pad_sequence([core for core, _ in chosen], batch_first=True)
            length = torch.tensor([len(core) for core, _ in chosen])
            yield rings, length, torch.tensor([site for _, site in chosen])


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)

    def forward(self, x, mask):
        b, t, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.proj(seen.transpose(1, 2).reshape(b, t, w))
        return x + self.down(F.relu(self.up(self.norm2(x))))


class SiteReader(nn.Module):
    def __init__(self, width=64, heads=4, depth=3):
        super().__init__()
        self.enter = nn.Conv1d(3, width, 5, padding=2)
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, len(SITES))

    def forward(self, rings, length):
        here = torch.arange(rings.shape[1]) < length.unsqueeze(1)
        x = self.enter(rings.transpose(1, 2)).transpose(1, 2)
        mask = here[:, None, None, :].expand(-1, 1, rings.shape[1], -1)
        for layer in self.layers:
            x = layer(x, mask)
        x = self.norm(x) * here.unsqueeze(2)
        return self.head(x.sum(1) / length.unsqueeze(1))


def evaluate(model, cores):
    model.eval()
    tally = torch.zeros(2)
    with torch.no_grad():
        for rings, length, site in cores:
            tally += torch.tensor([(model(rings, length).argmax(1) == site).sum(), len(site)])
    dist.all_reduce(tally)
    return (tally[0] / tally[1]).item()


def work(rank, args):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", str(args.port))
    torch.set_num_threads(max(1, (os.cpu_count() or WORLD) // WORLD))
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    torch.manual_seed(14)
    train = Cores(measure(args.cores, 1), args.batch, rank, WORLD)
    test = Cores(measure(512, 2), args.batch, rank, WORLD)
    model = DistributedDataParallel(SiteReader())
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.02)
    steps = args.epochs * len(train)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=steps)

    dist.barrier()
    began = time.perf_counter()
    for epoch in range(args.epochs):
        losses = []
        for rings, length, site in train:
            loss = F.cross_entropy(model(rings, length), site)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            losses.append(loss.detach())
        mean = torch.stack(losses).mean()
        dist.all_reduce(mean)
        if rank == 0:
            spent = time.perf_counter() - began
            print(f"epoch {epoch + 1:2d}  loss {mean.item() / WORLD:.3f}  {spent:5.1f} s", flush=True)
    seconds = time.perf_counter() - began
    accuracy = evaluate(model.module, test)
    if rank == 0:
        print(f"test accuracy {accuracy:.3f}")
        print(f"total training seconds {seconds:.1f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--cores", type=int, default=1536)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--port", type=int, default=29517)
    args = parser.parse_args()
    mp.spawn(work, args=(args,), nprocs=WORLD)
