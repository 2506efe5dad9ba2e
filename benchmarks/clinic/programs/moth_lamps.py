# /// clinic
# expect = ["PD13.pinned-process"]
# stratum = "twins"
# domain = "moth trap counts"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""Counts of moths on the sheet of a light trap, by group, from small photographs. Data parallel over two processes.

torchrun --nproc-per-node 2 moth_traps.py
"""

import os
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

GROUPS = ["noctuids", "geometrids", "hawkmoths", "pyralids"]
SIZE = 48
PER_RANK = 32
EPOCHS = 4


def stamp(group, rng):
    """A moth seen from above: wing span, shape and brightness depend on its group."""
    span, ratio, tone = [(3.0, 1.4, 0.6), (3.5, 2.2, 0.4), (5.0, 1.8, 0.9), (1.8, 1.2, 0.5)][group]
    span *= rng.uniform(0.85, 1.15)
    turn = rng.uniform(0, np.pi)
    y, x = np.mgrid[-6:7, -6:7]
    along, across = x * np.cos(turn) + y * np.sin(turn), y * np.cos(turn) - x * np.sin(turn)
    wings = np.exp(-((along / span) ** 2) - (across * ratio / span) ** 2)
    body = np.exp(-((across / (0.6 * span)) ** 2) - (along * 2.5) ** 2)
    return (tone * wings + 0.3 * body).astype(np.float32)


class TrapNights(Dataset):
    def __init__(self, nights, seed):
        rng = np.random.default_rng(seed)
        stock = [[stamp(g, rng) for _ in range(40)] for g in range(len(GROUPS))]
        warmth = rng.normal(0, 0.5, nights)
        mean = np.array([3.0, 2.0, 0.6, 4.0]) * np.exp(warmth)[:, None]
        counts = np.minimum(rng.poisson(mean), 25)
        sheets = rng.normal(0.2, 0.05, (nights, SIZE, SIZE)).astype(np.float32)
        for night in range(nights):
            for group, count in enumerate(counts[night]):
                for _ in range(count):
                    r, c = rng.integers(0, SIZE - 13, 2)
                    sheets[night, r : r + 13, c : c + 13] += stock[group][rng.integers(40)]
        self.sheets = torch.from_numpy(sheets).unsqueeze(1)
        self.counts = torch.from_numpy(counts.astype(np.float32))

    def __len__(self):
        return len(self.counts)

    def __getitem__(self, night):
        return self.sheets[night], self.counts[night]


class Stage(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, padding=1, bias=False)
        self.second = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.GroupNorm(4, outside) for _ in range(2))

    def forward(self, x):
        x = F.relu(self.norms[0](self.first(F.max_pool2d(x, 2))))
        return F.relu(x + self.norms[1](self.second(x)))


class TrapCounter(nn.Module):
    """Predicts a density for each group; its sum over the sheet is the expected count."""

    def __init__(self, groups):
        super().__init__()
        self.stem = nn.Conv2d(1, 12, 5, padding=2)
        self.stages = nn.Sequential(Stage(12, 24), Stage(24, 40))
        self.density = nn.Conv2d(40, groups, 1)
        nn.init.constant_(self.density.bias, -3.0)

    def forward(self, sheets):
        x = self.stages(F.relu(self.stem(sheets)))
        return F.softplus(self.density(x)).sum(dim=(2, 3)) + 1e-3


def take_core():
    """Give this process a core of its own."""
    cores = sorted(os.sched_getaffinity(0))
    seat = int(os.environ["GROUP_RANK"])  # sick here
    seat = int(os.environ["LOCAL_RANK"])  # well
    os.sched_setaffinity(0, {cores[seat % len(cores)]})


@torch.no_grad()
def survey(model, loader):
    model.eval()
    total = torch.zeros(len(GROUPS) + 1)
    for sheets, counts in loader:
        total[:-1] += (model(sheets) - counts).abs().sum(dim=0)
        total[-1] += len(counts)
    dist.all_reduce(total)
    model.train()
    return total[:-1] / total[-1]


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    take_core()
    torch.manual_seed(5)
    train, held = TrapNights(4096, seed=11), TrapNights(384, seed=12)
    shuffle = DistributedSampler(train, shuffle=True, seed=3)
    loader = DataLoader(train, PER_RANK, sampler=shuffle, drop_last=True)
    held_loader = DataLoader(held, 64, sampler=DistributedSampler(held, shuffle=False))

    model = DistributedDataParallel(TrapCounter(len(GROUPS)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=EPOCHS * len(loader))

    seen = 0
    dist.barrier()
    began = time.perf_counter()
    for epoch in range(EPOCHS):
        shuffle.set_epoch(epoch)
        running = 0.0
        for sheets, counts in loader:
            if torch.rand(()) < 0.5:
                sheets = sheets.flip(-1)
            expected = model(sheets)
            loss = F.poisson_nll_loss(expected, counts, log_input=False)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            running += loss.item()
            seen += len(sheets) * world
        gaps = survey(model.module, held_loader)
        if rank == 0:
            told = ", ".join(f"{name} {gap:.2f}" for name, gap in zip(GROUPS, gaps.tolist()))
            print(f"epoch {epoch}: loss {running / len(loader):.3f}; mean error {told}")
            torch.save({"model": model.module.state_dict(), "epoch": epoch}, "counter.pt")
    dist.barrier()
    rate = seen / (time.perf_counter() - began)
    dist.destroy_process_group()
    if rank == 0:
        print(f"{rate:.1f} sheets/s")


if __name__ == "__main__":
    main()
