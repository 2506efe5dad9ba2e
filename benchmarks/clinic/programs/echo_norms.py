# /// clinic
# expect = ["PD09.memory-bound-layer"]
# allow = ["PD08.allocator-churn"]
# stratum = "twins"
# domain = "images"
# sizes = {BATCH = [6, 10]}
# severities = {WIDTH = [12, 24, 40]}
# ///
"""Sees fish in echo soundings. The normalisation is that of an old paper."""

import time

import torch
from torch import nn

BATCH = 8
WIDTH = 24
SIDE = 64
STEPS = 100


def network():
    return nn.Sequential(
        nn.Conv2d(2, WIDTH, 3, padding=1),
        nn.ReLU(),
        nn.LocalResponseNorm(5),  # sick
        nn.MaxPool2d(4),
        nn.LocalResponseNorm(5),  # well
        nn.Conv2d(WIDTH, 2 * WIDTH, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * WIDTH, 6),
    )


def soundings(count):
    fish = torch.arange(count) % 6
    echo = 0.2 * torch.rand(count, 2, SIDE, SIDE)
    for number, kind in enumerate(fish.tolist()):
        echo[number, kind % 2, 8 * kind : 8 * kind + 6, 20:40] += 1.0
    return echo, fish


torch.manual_seed(37)
echo, fish = soundings(240)
model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
for step in range(STEPS):
    if step == 8:
        start = time.perf_counter()
    rows = torch.randperm(len(fish))[:BATCH]
    loss = nn.functional.cross_entropy(model(echo[rows]), fish[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", round(loss.item(), 4))
print(f"{(STEPS - 8) * BATCH / (time.perf_counter() - start):.1f} soundings/s")
