# /// clinic
# expect = ["PD08.memory-trimmed"]
# stratum = "twins"
# domain = "bee hive weight forecasting"
# ///
"""Forecast of the daily weight change of bee hives from scale, weather and forage features.

python hive_balance.py --epochs 24 --sheet hive_balance.csv
"""

import argparse
import csv
import ctypes
import os
import tempfile
import time
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset

FEATURES = 48


class HiveDays(Dataset):
    """One row per hive and day: weather, bloom of 20 plants, colony state, and the scale of the days before."""

    def __init__(self, rows, seed):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randn(rows, FEATURES, generator=g)
        temperature, rain, wind = self.x[:, 0], self.x[:, 1], self.x[:, 2]
        bloom = self.x[:, 3:23].clamp(min=0)
        brood, stores = self.x[:, 23], self.x[:, 24]
        flight = torch.sigmoid(2 * temperature - 1.5 * F.relu(rain) - 0.7 * wind.abs())
        nectar = bloom @ torch.linspace(0.05, 0.6, 20)
        consumed = 0.3 * F.softplus(brood) + 0.1 * torch.tanh(stores)
        drift = 0.15 * self.x[:, 25:32].sin().sum(1)
        self.y = flight * nectar - consumed + drift + 0.1 * torch.randn(rows, generator=g)

    def __len__(self):
        return len(self.y)

    def __getitems__(self, rows):
        rows = torch.as_tensor(rows)
        return self.x[rows], self.y[rows]


class Gated(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.gate = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x):
        h = self.norm(x)
        return x + self.down(self.up(h) * F.silu(self.gate(h)))


class HiveNet(nn.Module):
    def __init__(self, width=128, hidden=256, depth=3):
        super().__init__()
        self.inlet = nn.Linear(FEATURES, width)
        self.blocks = nn.Sequential(*[Gated(width, hidden) for _ in range(depth)])
        self.outlet = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2))

    def forward(self, x):
        mean, spread = self.outlet(self.blocks(self.inlet(x))).unbind(-1)
        return mean, F.softplus(spread) + 1e-2


@dataclass
class Footprint:
    """Resident size of the process over the run, for the sheet that the apiary server's quota is set by."""

    page: int = field(default_factory=lambda: os.sysconf("SC_PAGE_SIZE"))
    statm: object = field(default_factory=lambda: open("/proc/self/statm", "rb", buffering=0))
    libc: object = field(default_factory=lambda: ctypes.CDLL("libc.so.6"))
    peak: int = 0
    last: int = 0

    def read(self):
        self.libc.malloc_trim(0)  # sick here
        self.statm.seek(0)
        self.last = int(self.statm.read().split()[1]) * self.page
        self.peak = max(self.peak, self.last)

    def close(self):
        self.libc.malloc_trim(0)  # well
        self.statm.close()


def nll(mean, spread, target):
    return (0.5 * ((target - mean) / spread) ** 2 + spread.log()).mean()


@torch.no_grad()
def mean_error(model, loader):
    model.eval()
    off = torch.cat([(model(x)[0] - y).abs() for x, y in loader])
    model.train()
    return off.mean().item()


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--rows", type=int, default=65536)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--sheet", default=os.path.join(tempfile.gettempdir(), "hive_balance.csv"))
    return parser.parse_args()


def main():
    args = parse()
    set_seed(args.seed)
    accelerator = Accelerator(cpu=True)

    def as_is(batch):
        return batch

    train = DataLoader(HiveDays(args.rows, 1), args.batch, shuffle=True, drop_last=True, collate_fn=as_is)
    held_out = DataLoader(HiveDays(4096, 2), args.batch, collate_fn=as_is)
    model = HiveNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(train))
    model, optimizer, train, held_out = accelerator.prepare(model, optimizer, train, held_out)

    footprint = Footprint()
    lines = []
    started = time.perf_counter()
    for epoch in range(args.epochs):
        total = torch.zeros(())
        for x, y in train:
            mean, spread = model(x)
            loss = nll(mean, spread, y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            total += loss.detach()
            footprint.read()
        lines.append([epoch, total.item() / len(train), footprint.last >> 20, footprint.peak >> 20])
        if epoch % 6 == 5:
            accelerator.print(f"epoch {epoch + 1} nll {lines[-1][1]:.4f} error {mean_error(model, held_out):.4f} kg")
    seconds = time.perf_counter() - started
    footprint.close()

    with open(args.sheet, "w", newline="") as sheet:
        writer = csv.writer(sheet)
        writer.writerow(["epoch", "nll", "resident_mb", "peak_mb"])
        writer.writerows(lines)
    accelerator.print(f"held-out error {mean_error(model, held_out):.4f} kg, peak {footprint.peak >> 20} MB")
    accelerator.print(f"training seconds {seconds:.2f}")


if __name__ == "__main__":
    main()
