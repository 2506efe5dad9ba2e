# /// clinic
# stratum = "decoys"
# resembles = ["PD15"]
# domain = "vision"
# allow = ["PD05", "PD08", "PD10"]
# sizes = {PIXELS = [80, 128], WIDTH = [300, 400]}
# ///
"""Reefs from above, told from those seen before. The memory fills in the first steps and then forgets the oldest."""

import time

import torch
from torch import nn

PIXELS = 96
WIDTH = 350
STEPS = 900
BATCH = 64
KEPT = 2048


def main():
    torch.manual_seed(12)
    reefs = torch.randn(6000, PIXELS)
    net = nn.Sequential(nn.Linear(PIXELS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 32))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.03)
    memory = nn.functional.normalize(torch.randn(BATCH, 32), dim=1)
    for step in range(STEPS):
        if step == 60:
            began = time.perf_counter()
        some = reefs[torch.randint(0, len(reefs), (BATCH,))]
        one, other = (nn.functional.normalize(net(some + 0.1 * torch.randn_like(some)), dim=1) for _ in range(2))
        scores = torch.cat([(one * other).sum(1, keepdim=True), one @ memory.T], 1)
        loss = nn.functional.cross_entropy(scores / 0.1, torch.zeros(BATCH, dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        memory = torch.cat([memory, other.detach()])[-KEPT:]
    print(f"loss {loss.item():.4f}")
    print(f"{(STEPS - 60) * BATCH / (time.perf_counter() - began):.1f} samples/s")


if __name__ == "__main__":
    main()
