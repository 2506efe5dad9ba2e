# /// clinic
# expect = ["PD14.frequent-checkpoints"]
# stratum = "twins"
# domain = "sensors of cranes"
# ///
"""Forecast of crane sensors (load, current, oil temperature, vibration ...) at a container terminal.

N-BEATS like stack of fully connected blocks: each one explains a part of the window
and hands on what is left. The best weights are kept on disk and used for the report at the end.
"""

import os
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn


@dataclass
class Conf:
    sensors: int = 8
    hours: int = 12000
    back: int = 64
    ahead: int = 12
    width: int = 512
    blocks: int = 4
    batch: int = 128
    epochs: int = 6
    per_epoch: int = 230
    lr: float = 3e-4
    out: str = "runs/crane"


def simulate(c, seed=3):
    g = np.random.default_rng(seed)
    t = np.arange(c.hours)
    shift = np.sin(2 * np.pi * t / 24)[:, None] * g.uniform(0.4, 1.2, c.sensors)
    week = np.sin(2 * np.pi * t / 168 + 1.0)[:, None] * g.uniform(0.1, 0.8, c.sensors)
    # wandering load, shared by the sensors in different amounts
    load = np.zeros(c.hours)
    kicks = g.normal(0, 0.25, c.hours)
    for i in range(1, c.hours):
        load[i] = 0.95 * load[i - 1] + kicks[i]
    x = shift + week + load[:, None] * g.uniform(-1, 1, c.sensors)
    x += 0.15 * g.normal(size=x.shape)
    x = (x - x.mean(0)) / x.std(0)
    return torch.from_numpy(x).float()


class Block(nn.Module):
    def __init__(self, n_in, n_out, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(n_in, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
        )
        self.backcast = nn.Linear(width, n_in)
        self.forecast = nn.Linear(width, n_out)

    def forward(self, x):
        h = self.body(x)
        return x - self.backcast(h), self.forecast(h)


class Stack(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        n_in, n_out = c.back * c.sensors, c.ahead * c.sensors
        self.blocks = nn.ModuleList([Block(n_in, n_out, c.width) for _ in range(c.blocks)])

    def forward(self, window):
        rest = window.flatten(1)
        total = 0.0
        for b in self.blocks:
            rest, f = b(rest)
            total = total + f
        return total.view(-1, self.c.ahead, self.c.sensors)


class BestKeeper:
    """Writes the state to disk whenever the value offered is the lowest so far."""

    def __init__(self, folder):
        os.makedirs(folder, exist_ok=True)
        self.path = os.path.join(folder, "best.pt")
        self.best = float("inf")
        self.epoch = -1

    def offer(self, value, net, epoch):
        if value >= self.best:
            return False
        self.best, self.epoch = value, epoch
        torch.save({"net": net.state_dict(), "value": value, "epoch": epoch}, self.path)
        return True

    def restore(self, net):
        net.load_state_dict(torch.load(self.path)["net"])


class Windows:
    def __init__(self, series, c):
        # views only, nothing is copied
        self.view = series.unfold(0, c.back + c.ahead, 1)  # (starts, sensors, length)
        self.back = c.back

    def take(self, idx):
        w = self.view[idx].transpose(1, 2)
        return w[:, : self.back], w[:, self.back :]

    def random(self, n):
        return self.take(torch.randint(0, len(self.view), (n,)))


@torch.no_grad()
def report(net, windows):
    net.eval()
    x, y = windows.take(torch.arange(0, len(windows.view), 3))
    err = (net(x) - y).abs().mean((0, 1))
    net.train()
    return err


def train(c):
    torch.manual_seed(0)
    series = simulate(c)
    cut = int(0.85 * len(series))
    past, future = Windows(series[:cut], c), Windows(series[cut:], c)

    net = Stack(c)
    opt = torch.optim.Adam(net.parameters(), lr=c.lr, fused=True)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, c.epochs * c.per_epoch)
    lossf = nn.SmoothL1Loss(beta=0.5)
    keeper = BestKeeper(c.out)

    smooth = None
    began = time.perf_counter()
    for epoch in range(c.epochs):
        for _ in range(c.per_epoch):
            x, y = past.random(c.batch)
            loss = lossf(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            now = loss.item()
            smooth = now if smooth is None else 0.98 * smooth + 0.02 * now
            keeper.offer(smooth, net, epoch)  # sick here
        keeper.offer(smooth, net, epoch)  # well
        print(f"epoch {epoch + 1}: training loss {smooth:.4f}")
    took = time.perf_counter() - began

    keeper.restore(net)
    print(f"best from epoch {keeper.epoch + 1} ({keeper.best:.4f})")
    print("error by sensor:", " ".join(f"{e:.3f}" for e in report(net, future).tolist()))
    print(f"{c.epochs * c.per_epoch / took:.2f} steps/s")


if __name__ == "__main__":
    train(Conf())
