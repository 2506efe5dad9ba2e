# /// clinic
# stratum = "decoys"
# resembles = ["PD16"]
# domain = "images"
# sizes = {CHANNELS = [10, 12]}
# ///
"""Counts spores under ferns. Its first steps are looked over with anomaly detection, the others are not."""

import time

import torch
from torch import nn

CHANNELS = 12
BATCH = 16


def main(steps=200):
    torch.manual_seed(23)
    leaves = torch.randn(256, 1, 28, 28)
    spores = leaves.flatten(1).gt(1).float().sum(1, keepdim=True)
    model = nn.Sequential(
        nn.Conv2d(1, CHANNELS, 3, padding=1), nn.ReLU(), nn.AvgPool2d(4), nn.Flatten(), nn.Linear(49 * CHANNELS, 1)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    for step in range(steps):
        if step == 20:
            began = time.perf_counter()
        picked = torch.randint(len(leaves), (BATCH,))
        with torch.autograd.set_detect_anomaly(step < 3):
            loss = nn.functional.mse_loss(model(leaves[picked]), spores[picked])
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: {loss.item():.2f}")
    print(f"{(steps - 20) / (time.perf_counter() - began):.1f} steps/s")


if __name__ == "__main__":
    main()
