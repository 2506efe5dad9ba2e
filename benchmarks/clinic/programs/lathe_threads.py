# /// clinic
# expect = ["PD13"]
# stratum = "twins"
# domain = "time series"
# environment = {OMP_NUM_THREADS = "16"}
# cure = {OMP_NUM_THREADS = "2"}
# sizes = {CHANNELS = [6, 12]}
# severities = {WIDTH = [900, 500, 200]}
# ///
"""Tells from its vibration whether a lathe's tool is worn."""

import time

import torch
from torch import nn

CHANNELS = 8
WIDTH = 500
BATCH = 64
SAMPLES = 64
SECONDS = 4.5


def recordings(count):
    worn = torch.arange(count) % 2
    time_axis = torch.linspace(0, 6, SAMPLES)
    tone = torch.sin(time_axis[None, None] * (3 + worn[:, None, None]) * torch.rand(count, CHANNELS, 1))
    return tone + 0.3 * torch.randn(count, CHANNELS, SAMPLES), worn


def main():
    torch.manual_seed(31)
    vibration, worn = recordings(1500)
    model = nn.Sequential(nn.Flatten(), nn.Linear(CHANNELS * SAMPLES, WIDTH), nn.SiLU())
    for _ in range(4):
        model.extend([nn.Linear(WIDTH, WIDTH), nn.SiLU()])
    model.append(nn.Linear(WIDTH, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    steps, began = 0, None
    while began is None or time.perf_counter() - began < SECONDS:
        if steps == 20:
            began = time.perf_counter()
        rows = torch.randint(0, len(worn), (BATCH,))
        loss = nn.functional.cross_entropy(model(vibration[rows]), worn[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    print(f"loss {loss.item():.4f} after {steps} steps")
    print(f"{(steps - 20) * BATCH / (time.perf_counter() - began):.1f} recordings/s")


if __name__ == "__main__":
    main()
