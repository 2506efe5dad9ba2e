# /// clinic
# expect = ["PD16.deterministic-algorithms"]
# stratum = "twins"
# domain = "images"
# sizes = {CHANNELS = [6, 8]}
# severities = {SIDE = [64, 96, 128]}
# ///
"""Tells layers of soil apart in photographs of a trench, pixel by pixel."""

import time

import torch
from torch import nn

CHANNELS = 8
SIDE = 96
BATCH = 8


class Mixing(nn.Module):
    """Cheap arithmetic on large tensors."""

    def forward(self, pixels):
        wet = torch.sigmoid(pixels) * pixels
        return wet + 0.5 * (pixels - wet).relu()


def main(steps=160):
    torch.manual_seed(21)
    torch.use_deterministic_algorithms(True)  # sick here
    photographs = torch.randn(64, 3, SIDE, SIDE)
    layers = (photographs.mean(1) > 0).long()
    model = nn.Sequential(nn.Conv2d(3, CHANNELS, 1), *(Mixing() for _ in range(6)), nn.Conv2d(CHANNELS, 2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(steps):
        if step == 10:
            began = time.perf_counter()
        rows = torch.randint(len(photographs), (BATCH,))
        loss = nn.functional.cross_entropy(model(photographs[rows]), layers[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step}: {loss.item():.4f}")
    print(f"{(steps - 10) / (time.perf_counter() - began):.1f} steps/s")


if __name__ == "__main__":
    main()
