# /// clinic
# expect = ["PD19.accumulation-without-no-sync"]
# stratum = "twins"
# domain = "grading alpine cheese wheels by the sound of a hammer tap"
# ///
"""Listening to cheese: grade wheels of alpine cheese by the sound of the affineur's hammer.

A tap gives a spectrum of 640 bins.  The net grades the wheel (sound, blown, cracked, wet,
overripe, crumbling) and is trained by two processes, each with half of the cellar.
"""

import contextlib  # well
import os
import socket
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

GRADES = ("sound", "blown", "cracked", "wet", "overripe", "crumbling")
BINS = 640
CONFIG = dict(wheels=6144, micro_batch=48, accumulate=8, width=1024, depth=3, epochs=20, lr=6e-4, ranks=2)


class Taps(Dataset):
    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        shape = np.random.default_rng(99)
        modes = np.sort(shape.uniform(30, BINS - 60, (len(GRADES), 7)), axis=1)
        widths = shape.uniform(4, 14, (len(GRADES), 7))
        self.grade = rng.integers(len(GRADES), size=count)
        size = rng.normal(1.0, 0.03, (count, 1))
        centre = modes[self.grade] * size + rng.normal(0, 9.0, (count, 7))
        force = rng.gamma(3.0, 0.5, (count, 7))
        axis = np.arange(BINS)
        spectra = np.zeros((count, BINS), np.float32)
        for m in range(7):
            distance = (axis - centre[:, m, None]) / widths[self.grade][:, m, None]
            spectra += (force[:, m, None] * np.exp(-0.5 * distance**2)).astype(np.float32)
        spectra += rng.normal(0, 0.7, spectra.shape).astype(np.float32)
        self.spectra = torch.from_numpy(spectra)
        self.grade = torch.from_numpy(self.grade)

    def __len__(self):
        return len(self.grade)

    def __getitem__(self, i):
        return self.spectra[i], self.grade[i]

    def __getitems__(self, indices):
        return self.spectra[indices], self.grade[indices]


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        return x + torch.relu(self.mix(self.norm(x)))


class Affineur(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.ear = nn.Linear(BINS, width)
        self.layers = nn.Sequential(*[Layer(width) for _ in range(depth)])
        self.grade = nn.Linear(width, len(GRADES))

    def forward(self, spectra):
        return self.grade(self.layers(self.ear(spectra)))


def as_is(batch):
    return batch


def train_epoch(model, loader, optimizer, accumulate):
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    total = torch.zeros(())
    optimizer.zero_grad(set_to_none=True)
    for i, (spectra, grade) in enumerate(loader):
        last = (i + 1) % accumulate == 0
        loss = criterion(model(spectra), grade) / accumulate  # sick
        loss.backward()  # sick here
        with contextlib.nullcontext() if last else model.no_sync():  # well
            loss = criterion(model(spectra), grade) / accumulate  # well
            loss.backward()  # well
        total += loss.detach() * accumulate
        if last:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    return total / len(loader)


@torch.no_grad()
def grade_share(model, loader):
    model.eval()
    right = torch.zeros(2)
    for spectra, grade in loader:
        right[0] += (model.module(spectra).argmax(1) == grade).sum()
        right[1] += len(grade)
    dist.all_reduce(right)
    model.train()
    return (right[0] / right[1]).item()


def cellar(rank, config, count, seed, shuffle):
    taps = Taps(count, seed)
    sampler = DistributedSampler(taps, config["ranks"], rank, shuffle=shuffle, drop_last=True)
    return DataLoader(taps, config["micro_batch"], sampler=sampler, collate_fn=as_is, drop_last=shuffle), sampler


def worker(rank, port, config):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(max(1, (os.cpu_count() or 2) // config["ranks"]))
    dist.init_process_group("gloo", rank=rank, world_size=config["ranks"])
    torch.manual_seed(21)
    train, sampler = cellar(rank, config, config["wheels"], 1, True)
    test, _ = cellar(rank, config, 768, 2, False)
    model = DistributedDataParallel(Affineur(config["width"], config["depth"]), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"], weight_decay=0.01, fused=True)

    dist.barrier()
    start = time.perf_counter()
    for epoch in range(config["epochs"]):
        sampler.set_epoch(epoch)
        loss = train_epoch(model, train, optimizer, config["accumulate"])
        if (epoch + 1) % 5 == 0:
            share = grade_share(model, test)
            if rank == 0:
                print(f"epoch {epoch + 1:2d}: loss {loss.item():.4f}, wheels graded right {share:.1%}", flush=True)
    if rank == 0:
        print(f"training took {time.perf_counter() - start:.1f} seconds", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(free_port(), CONFIG), nprocs=CONFIG["ranks"])
