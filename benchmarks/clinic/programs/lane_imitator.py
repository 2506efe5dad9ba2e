# /// clinic
# expect = ["PD13"]
# stratum = "twins"
# domain = "imitation learning from pixels"
# ///
"""Clone a driver's steering from small camera frames."""

import argparse
import random
import time

import numpy as np
import torch
from torch import nn


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--frames", type=int, default=1500)
    p.add_argument("--side", type=int, default=64)
    p.add_argument("--stack", type=int, default=4)
    p.add_argument("--batch", type=int, default=48)
    p.add_argument("--steps", type=int, default=320)
    p.add_argument("--lr", type=float, default=5e-4)
    p.add_argument("--seed", type=int, default=17)
    return p.parse_args([])


def setup(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(1)  # sick here
    torch.use_deterministic_algorithms(True)


def record_drive(args):
    """Renders a road that bends and the steering that follows it."""
    side = args.side
    turn = np.cumsum(np.random.normal(0, 0.05, args.frames)).astype(np.float32)
    turn = np.clip(turn - turn.mean(), -1, 1)
    rows = np.linspace(0, 1, side, dtype=np.float32)[:, None]
    cols = np.linspace(-1, 1, side, dtype=np.float32)[None, :]
    frames = np.empty((args.frames, side, side), dtype=np.float32)
    for i, bend in enumerate(turn):
        mid = bend * (1 - rows) ** 2
        frames[i] = np.exp(-((cols - mid) ** 2) / (0.02 + 0.1 * rows))
    return torch.from_numpy(frames), torch.from_numpy(turn)


def batches(frames, turn, args):
    gen = torch.Generator().manual_seed(args.seed)
    back = torch.arange(args.stack)
    while True:
        end = torch.randint(args.stack, len(frames), (args.batch,), generator=gen)
        x = frames[end[:, None] - back]
        yield x + 0.05 * torch.randn(x.shape, generator=gen), turn[end]


class Driver(nn.Module):
    def __init__(self, stack, side):
        super().__init__()
        self.eyes = nn.Sequential(
            nn.Conv2d(stack, 32, 5, 2, 2),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, 1, 1),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.hands = nn.Sequential(nn.Linear(64 * (side // 8) ** 2, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, x):
        return self.hands(self.eyes(x)).squeeze(1).tanh()


def main():
    args = parse()
    setup(args.seed)
    stream = batches(*record_drive(args), args)
    model = Driver(args.stack, args.side)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    for step in range(1, args.steps + 1):
        x, y = next(stream)
        loss = nn.functional.huber_loss(model(x), y, delta=0.2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 20:
            start = time.perf_counter()
    print(f"{(args.steps - 20) / (time.perf_counter() - start):.1f} steps/s")


if __name__ == "__main__":
    main()
