# /// clinic
# expect = ["PD19.collectives-one-by-one"]
# stratum = "twins"
# domain = "weather"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""Forecasts the next reading of eight instruments at weather stations from the last twelve, on two ranks."""

import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel  # well

INSTRUMENTS = 8
HISTORY = 12
BATCH = 256
EPOCHS = 4
WIDTH = 320
BLOCKS = 6


def make_stations(stations=40, hours=1200, seed=0):
    """Daily and weekly waves, each station with its own phase, and an autoregressive disturbance."""
    rng = np.random.default_rng(seed)
    t = np.arange(hours)[None, :, None]
    phase = rng.uniform(0, 2 * np.pi, (stations, 1, INSTRUMENTS))
    size = rng.uniform(0.5, 1.5, (stations, 1, INSTRUMENTS))
    series = size * np.sin(2 * np.pi * t / 24 + phase) + 0.5 * np.sin(2 * np.pi * t / 168 + 2 * phase)
    noise = rng.normal(0, 0.2, (stations, hours, INSTRUMENTS))
    for h in range(1, hours):
        noise[:, h] += 0.7 * noise[:, h - 1]
    return torch.from_numpy((series + noise).astype(np.float32))


def make_windows(series):
    windows = series.unfold(1, HISTORY + 1, 1)
    windows = windows.reshape(-1, INSTRUMENTS, HISTORY + 1)
    x = windows[:, :, :HISTORY].reshape(len(windows), -1).contiguous()
    y = windows[:, :, HISTORY].contiguous()
    return x, y


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, width)
        self.down = nn.Linear(width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.entry = nn.Linear(INSTRUMENTS * HISTORY, WIDTH)
        self.blocks = nn.Sequential(*[Block(WIDTH) for _ in range(BLOCKS)])
        self.exit = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, INSTRUMENTS))

    def forward(self, x):
        return self.exit(self.blocks(self.entry(x)))


def average_gradients(model, world):  # sick
    for p in model.parameters():  # sick
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)  # sick here
        p.grad /= world  # sick


def error(model, x, y):
    """Mean squared error over this rank's part of the held-out windows, averaged over the ranks."""
    model.eval()
    total = torch.zeros(2)
    with torch.no_grad():
        for xb, yb in zip(x.split(512), y.split(512)):
            total[0] += nn.functional.mse_loss(model(xb), yb, reduction="sum")
            total[1] += yb.numel()
    dist.all_reduce(total)
    model.train()
    return (total[0] / total[1]).item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)

    x, y = make_windows(make_stations())
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))
    held, kept = order[:2048], order[2048 : 2048 + 20480]
    x_train, y_train = x[kept], y[kept]
    x_held, y_held = x[held[rank::world]], y[held[rank::world]]

    model = Forecaster()
    model = DistributedDataParallel(model, gradient_as_bucket_view=True)  # well
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.01, fused=True)

    seen = 0
    began = time.perf_counter()
    for epoch in range(EPOCHS):
        shuffle = torch.Generator().manual_seed(100 + epoch)
        mine = torch.randperm(len(x_train), generator=shuffle)[rank::world]
        running = torch.zeros(())
        for index in mine.split(BATCH):
            xb, yb = x_train[index], y_train[index]
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(xb), yb)
            loss.backward()
            average_gradients(model, world)  # sick
            optimizer.step()
            running += loss.detach()
            seen += len(index) * world
        if rank == 0:
            print(f"epoch {epoch}: loss {running.item() / (len(mine) // BATCH):.4f}")
    spent = time.perf_counter() - began

    held_error = error(model, x_held, y_held)
    if rank == 0:
        print(f"held-out error {held_error:.4f}")
        print(f"{seen / spent:.1f} samples/s")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
