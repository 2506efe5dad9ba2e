# /// clinic
# expect = ["PD13"]
# allow = ["PD08.allocator-churn", "PD12.throttled"]
# stratum = "contended"
# domain = "images"
# quota = 1.0
# environment = {OMP_NUM_THREADS = "2"}
# cure = {OMP_NUM_THREADS = "1"}
# sizes = {THREADING = [20, 30]}
# severities = {WIDTH = [40, 24, 12]}
# ///
"""Faults in woven cloth: small patches, a small network, a container that may use one CPU."""

import time

import torch
from torch import nn

THREADING = 24
WIDTH = 24
BATCH = 32
SECONDS = 5.0


class Cloth(nn.Module):
    def __init__(self):
        super().__init__()
        self.weave = nn.Sequential(
            nn.Conv2d(1, WIDTH, 3, padding=1), nn.ReLU(), nn.Conv2d(WIDTH, WIDTH, 3, padding=1), nn.ReLU()
        )
        self.fault = nn.Linear(WIDTH * 9, 2)

    def forward(self, patches):
        return self.fault(nn.functional.adaptive_avg_pool2d(self.weave(patches), 3).flatten(1))


def main():
    torch.manual_seed(28)
    patches = torch.rand(800, 1, THREADING, THREADING)
    faults = (patches[:, 0, 5, 5] > 0.5).long()
    model = Cloth()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    steps, began = 0, None
    while began is None or time.perf_counter() - began < SECONDS:
        if steps == 15:
            began = time.perf_counter()
        rows = torch.randint(0, len(faults), (BATCH,))
        loss = nn.functional.cross_entropy(model(patches[rows]), faults[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    print(f"loss {loss.item():.4f}")
    print(f"{(steps - 15) * BATCH / (time.perf_counter() - began):.1f} patches/s")


main()
