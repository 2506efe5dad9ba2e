# /// clinic
# stratum = "decoys"
# resembles = ["PD17"]
# domain = "series"
# sizes = {WIDTH = [160, 192]}
# ///
"""When is the next crane free? Four micro-batches for each step of the optimizer, and one of the schedule."""

import time

import torch
from torch import nn

WIDTH = 176
BATCH = 64
MICRO = 4


def main(steps=200):
    torch.manual_seed(18)
    lifts, waits = torch.randn(4096, WIDTH), torch.rand(4096, 1)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))
    groups = [{"params": list(model[:3].parameters())}, {"params": list(model[3:].parameters()), "lr": 0.01}]
    optimizer = torch.optim.SGD(groups, lr=0.05)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=20)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warmup, falling], [20])
    for step in range(steps):
        if step == 10:
            began = time.perf_counter()
        optimizer.zero_grad()
        for _ in range(MICRO):
            picked = torch.randint(len(lifts), (BATCH,))
            (nn.functional.mse_loss(model(lifts[picked]), waits[picked]) / MICRO).backward()
        optimizer.step()
        schedule.step()
    print(f"{(steps - 10) / (time.perf_counter() - began):.1f} steps/s")


if __name__ == "__main__":
    main()
