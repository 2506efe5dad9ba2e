# /// clinic
# expect = ["PD08"]
# stratum = "contra"
# domain = "series"
# sizes = {SENSORS = [10, 20]}
# severities = {WIDTH = [256, 320, 448]}
# ///
"""Sea level from tide gauges: a plain network, trained by SGD."""

import time

import numpy as np
import torch
from torch import nn

SENSORS = 14
WIDTH = 320
BATCH = 96
STEPS = 500


def levels(rng, count):
    phase = rng.uniform(0, 2 * np.pi, (count, 1))
    readings = np.sin(phase + np.arange(SENSORS) * 0.4) + rng.normal(0, 0.1, (count, SENSORS))
    return torch.tensor(readings, dtype=torch.float32), torch.tensor(np.sin(phase + 1), dtype=torch.float32)


layers = [nn.Linear(SENSORS, WIDTH), nn.Tanh()]
torch.manual_seed(6)
for _ in range(8):
    layers += [nn.Linear(WIDTH, WIDTH), nn.Tanh()]
net = nn.Sequential(*layers, nn.Linear(WIDTH, 1))
readings, level = levels(np.random.default_rng(6), 6000)
optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
for step in range(STEPS):
    if step == 20:
        start = time.perf_counter()
    rows = torch.randint(0, len(level), (BATCH,))
    loss = nn.functional.mse_loss(net(readings[rows]), level[rows])
    optimizer.zero_grad(set_to_none=False)  # sick
    optimizer.zero_grad(set_to_none=True)  # well
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print("step", step, "loss", f"{loss.item():.5f}")
print(f"{(STEPS - 20) * BATCH / (time.perf_counter() - start):.1f} samples/s")
