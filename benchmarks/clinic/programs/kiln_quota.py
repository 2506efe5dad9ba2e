# /// clinic
# expect = ["PD12.throttled"]
# stratum = "contended"
# domain = "tabular"
# smoke = true
# quota = 0.5
# sizes = {SENSORS = [30, 60], WIDTH = [400, 520]}
# ///
"""Is the kiln about to fail? A plain network in a small container."""

import time

import torch
from torch import nn

SENSORS = 44
WIDTH = 460
BATCH = 128
SECONDS = 5.0


def shifts(count):
    readings = torch.randn(count, SENSORS)
    return readings, (readings[:, :3].sum(1) > 2).float()


def main():
    torch.manual_seed(4)
    readings, failed = shifts(10_000)
    model = nn.Sequential(nn.Linear(SENSORS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps, began = 0, None
    while began is None or time.perf_counter() - began < SECONDS:
        if steps == 20:
            began = time.perf_counter()
        rows = torch.randint(0, len(failed), (BATCH,))
        loss = nn.functional.binary_cross_entropy_with_logits(model(readings[rows]).squeeze(1), failed[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    print(f"loss {loss.item():.4f}")
    print(f"{(steps - 20) * BATCH / (time.perf_counter() - began):.1f} samples/s")


if __name__ == "__main__":
    main()
