# /// clinic
# stratum = "decoys"
# resembles = ["PD18"]
# allow = ["PD05"]
# domain = "signals"
# ///
"""Finds blasts in ground noise, compiled; records come in five lengths, each compiled once."""

import random
import time

import torch
from torch import nn

torch.manual_seed(8)
lengths = random.Random(8)
network = nn.Sequential(nn.Linear(64, 384), nn.ReLU(), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, 2))
compiled = torch.compile(network, backend="aot_eager", dynamic=False)
optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
start = time.perf_counter()
for _ in range(1500):
    records = torch.randn(64 * lengths.randint(1, 5), 64)
    loss = nn.functional.cross_entropy(compiled(records), (records[:, 0] > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.4f}")
print(f"{1500 / (time.perf_counter() - start):.1f} steps/s")
