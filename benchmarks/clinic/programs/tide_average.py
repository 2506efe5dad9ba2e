# /// clinic
# expect = ["PD15.growing-container"]
# stratum = "twins"
# smoke = true
# domain = "time-series"
# beyond = true
# sizes = {GAUGES = [24, 40], WIDTH = [150, 250]}
# severities = {PER_STEP = [1, 2, 4]}
# ///
"""Water levels of the next hour from those of the day. The error over the whole training is kept in sight."""

import time

import torch
from torch import nn

GAUGES = 32
WIDTH = 200
PER_STEP = 2
STEPS = 2500
BATCH = 96


def main():
    torch.manual_seed(4)
    levels = torch.randn(20000, GAUGES).cumsum(0) / 50
    net = nn.Sequential(nn.Linear(GAUGES, WIDTH), nn.Tanh(), nn.Linear(WIDTH, GAUGES))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    errors = []  # sick
    total, count = torch.zeros(()), 0  # well
    for step in range(STEPS):
        if step == 20:
            began = time.perf_counter()
        now = torch.randint(0, len(levels) - 1, (BATCH,))
        error = (net(levels[now]) - levels[now + 1]).square()
        optimizer.zero_grad()
        error.mean().backward()
        optimizer.step()
        for part in error.detach().chunk(PER_STEP):
            errors.append(part.mean())  # sick here
            total, count = total + part.mean(), count + 1  # well
        average = torch.stack(errors).mean()  # sick here
        average = total / count  # well
    print(f"average error {average.item():.4f}")
    print(f"{(STEPS - 20) * BATCH / (time.perf_counter() - began):.1f} samples/s")


if __name__ == "__main__":
    main()
