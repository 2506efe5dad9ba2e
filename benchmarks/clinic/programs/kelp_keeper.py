# /// clinic
# expect = ["PD14.frequent-checkpoints"]
# stratum = "twins"
# smoke = true
# domain = "vision"
# sizes = {PATCH = [300, 400], WIDTH = [450, 600]}
# severities = {EVERY = [20, 10, 4]}
# ///
"""Kelp or sand, from patches of a photograph taken by a boat. The state of the training is kept on the disk."""

import time

import torch
from torch import nn

PATCH = 350
WIDTH = 512
EVERY = 10
RARELY = 1000
SECONDS = 5.0
BATCH = 128


def main():
    torch.manual_seed(23)
    patches = torch.randn(5000, PATCH)
    kelp = (patches[:, :9].sum(1) > 0).long()
    net = nn.Sequential(nn.Linear(PATCH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    steps, began = 0, None
    while began is None or time.perf_counter() - began < SECONDS:
        if steps == 20:
            began = time.perf_counter()
        rows = torch.randint(0, len(kelp), (BATCH,))
        loss = nn.functional.cross_entropy(net(patches[rows]), kelp[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        due = steps % EVERY == 0  # sick
        due = steps % RARELY == 0  # well
        if due:
            torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, "kelp.pt")  # here
    print(f"loss {loss.item():.4f} after {steps} steps")
    print(f"{(steps - 20) * BATCH / (time.perf_counter() - began):.1f} samples/s")


if __name__ == "__main__":
    main()
