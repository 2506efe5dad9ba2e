# /// clinic
# expect = ["PD07.float64"]
# stratum = "twins"
# domain = "clock escapements"
# ///
"""Fault finding on clock escapements from the beat record of a timing microphone.

Each window holds the last beats of one movement: interval error, amplitude, beat error, drop noise and case
temperature.  A small net names the fault of the escapement and the daily rate of the clock.
"""

import argparse
import math
import time

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.nn import functional as F

FAULTS = ("sound", "worn pallet", "bent crutch", "dry pivot", "recoil")
BEATS, CHANNELS = 24, 5


def make_movements(count, seed):
    """Draws beat records for a workshop full of movements with one fault (or none) each."""
    rng = np.random.default_rng(seed)
    fault = rng.integers(0, len(FAULTS), count)
    beat = np.arange(BEATS)[None, :]
    phase = rng.uniform(0, 2 * math.pi, (count, 1))
    rate = rng.normal(0.0, 1.0, count)
    tooth = np.sin(2 * math.pi * beat / 15 + phase)
    interval = 0.2 * rate[:, None] + 0.1 * tooth + rng.normal(0, 0.2, (count, BEATS))
    amplitude = 1.0 - 0.1 * rng.random((count, 1)) + rng.normal(0, 0.05, (count, BEATS))
    beat_error = rng.normal(0, 0.1, (count, BEATS))
    noise = np.abs(rng.normal(0, 0.3, (count, BEATS)))
    temperature = np.repeat(rng.normal(0, 1, (count, 1)), BEATS, axis=1)

    worn, bent, dry, recoil = (fault[:, None] == k for k in (1, 2, 3, 4))
    interval = interval + worn * 0.5 * (tooth > 0.6) - recoil * 0.15 * np.cos(math.pi * beat)
    beat_error = beat_error + bent * 0.4 * np.where(beat % 2 == 0, 1.0, -1.0)
    amplitude = amplitude - dry * (0.015 * beat + 0.1 * (temperature < 0))
    noise = noise + recoil * 0.4 + worn * 0.2
    record = np.stack([interval, amplitude, beat_error, noise, temperature], axis=-1)
    return (
        torch.from_numpy(record),  # sick here
        torch.from_numpy(record).float(),  # well
        torch.from_numpy(fault),
        torch.from_numpy(rate),  # sick
        torch.from_numpy(rate).float(),  # well
    )


class Gear(nn.Module):
    """A residual layer."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.turn = nn.Linear(width, width)

    def forward(self, x):
        return x + F.silu(self.turn(self.norm(x)))


class BeatNet(nn.Module):
    """Reads the whole window at once; one head names the fault, the other gives the daily rate."""

    def __init__(self, width, depth):
        super().__init__()
        self.embed = nn.Linear(BEATS * CHANNELS, width)
        self.train_of_gears = nn.Sequential(*(Gear(width) for _ in range(depth)))
        self.fault = nn.Linear(width, len(FAULTS))
        self.rate = nn.Linear(width, 1)

    def forward(self, record):
        x = F.silu(self.embed(record.flatten(1)))
        x = self.train_of_gears(x)
        return self.fault(x), self.rate(x).squeeze(-1)


def batches(data, size, generator):
    """Endless shuffled batches of the record."""
    count = len(data[0])
    while True:
        order = torch.randperm(count, generator=generator)
        for start in range(0, count - size + 1, size):
            pick = order[start : start + size]
            yield tuple(part[pick] for part in data)


@torch.no_grad()
def bench_test(model, data):
    model.eval()
    fault, rate = model(data[0])
    model.train()
    return (fault.argmax(-1) == data[1]).float().mean().item(), F.l1_loss(rate, data[2]).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--batch-size", type=int, default=160)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--eval-every", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=1657)
    args = parser.parse_args()

    set_seed(args.seed)
    accelerator = Accelerator(cpu=True)
    train = make_movements(20_000, args.seed)
    held_out = make_movements(1_000, args.seed + 1)

    model = BeatNet(args.width, args.depth)
    model = model.double()  # sick here
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-2, fused=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=args.lr, total_steps=args.steps + 1)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    accelerator.print(f"{sum(p.numel() for p in model.parameters())} parameters, {len(train[0])} movements")

    source = batches(train, args.batch_size, torch.Generator().manual_seed(args.seed))
    running = torch.zeros(())
    began = time.perf_counter()
    for step in range(1, args.steps + 1):
        record, fault, rate = next(source)
        said, guessed = model(record)
        loss = F.cross_entropy(said, fault) + 0.5 * F.smooth_l1_loss(guessed, rate)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        scheduler.step()
        running += loss.detach()
        if step % args.eval_every == 0:
            right, off = bench_test(model, held_out)
            mean = (running / args.eval_every).item()
            accelerator.print(f"step {step}: loss {mean:.4f}, faults named {right:.3f}, rate off by {off:.3f} s/day")
            running.zero_()
    took = time.perf_counter() - began

    accelerator.end_training()
    rate = args.steps * args.batch_size / took
    print(f"{rate:.1f} windows/s")


if __name__ == "__main__":
    main()
