# /// clinic
# stratum = "decoys"
# resembles = ["PD17"]
# domain = "tabular"
# sizes = {WIDTH = [300, 420]}
# ///
"""A learning rate that rises from 0, and one group that learns a hundredth as fast as the other."""

import time

import torch
from torch import nn

WIDTH = 360
STEPS = 600


def main():
    torch.manual_seed(1)
    body = nn.Sequential(nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
    head = nn.Linear(WIDTH, 4)
    groups = [{"params": body.parameters(), "lr": 1e-5}, {"params": head.parameters(), "lr": 1e-3}]
    optimizer = torch.optim.AdamW(groups, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 50))
    truth = torch.randn(64, 4)
    for step in range(STEPS):
        if step == 20:
            began = time.perf_counter()
        x = torch.randn(256, 64)
        loss = nn.functional.cross_entropy(head(body(x)), (x @ truth).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    print(f"loss {loss.item():.3f}")
    print(f"{256 * (STEPS - 20) / (time.perf_counter() - began):.1f} rows/s")


if __name__ == "__main__":
    main()
