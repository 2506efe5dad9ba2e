# /// clinic
# expect = ["PD15.growing-tensor"]
# stratum = "twins"
# domain = "vision"
# beyond = true
# sizes = {PIXELS = [80, 128], WIDTH = [96, 160]}
# severities = {STEPS = [400, 600, 900]}
# ///
"""Two views of one coral are to be near each other, and far from those of other corals that were seen before."""

import time

import torch
from torch import nn

PIXELS = 96
WIDTH = 128
STEPS = 600
BATCH = 64
KEPT = 512


def main():
    torch.manual_seed(9)
    corals = torch.randn(6000, PIXELS)
    net = nn.Sequential(nn.Linear(PIXELS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 48))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.03)
    bank = nn.functional.normalize(torch.randn(KEPT, 48), dim=1)
    for step in range(STEPS):
        if step == 20:
            began = time.perf_counter()
        some = corals[torch.randint(0, len(corals), (BATCH,))]
        one, other = (nn.functional.normalize(net(some + 0.1 * torch.randn_like(some)), dim=1) for _ in range(2))
        near, far = (one * other).sum(1, keepdim=True), one @ bank.T
        loss = nn.functional.cross_entropy(torch.cat([near, far], 1) / 0.1, torch.zeros(BATCH, dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        bank = torch.cat([bank, other.detach()])  # sick here
        bank = torch.cat([bank, other.detach()])[-KEPT:]  # well
    print(f"loss {loss.item():.4f}")
    print(f"{(STEPS - 20) * BATCH / (time.perf_counter() - began):.1f} samples/s")


if __name__ == "__main__":
    main()
