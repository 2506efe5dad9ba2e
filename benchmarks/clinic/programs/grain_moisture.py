# /// clinic
# expect = ["PD17.parameter-reads"]
# allow = ["PD17.slow-update", "PD05"]
# stratum = "twins"
# domain = "tabular"
# sizes = {INPUTS = [12, 24]}
# severities = {BLOCKS = [8, 16, 28]}
# ///
"""How moist is the grain? A deep network over sensor readings; the norm of every gradient is watched."""

import time

import torch
from torch import nn

INPUTS = 18
BLOCKS = 16
WIDTH = 40
BATCH = 128


def network():
    blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.SiLU()) for _ in range(BLOCKS)]
    return nn.Sequential(nn.Linear(INPUTS, WIDTH), *blocks, nn.Linear(WIDTH, 1))


def train(steps=500, warm=20):
    torch.manual_seed(3)
    readings = torch.randn(6000, INPUTS)
    moisture = readings[:, :3].sigmoid().mean(1, keepdim=True)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    sizes, peaks = [], []
    for step in range(steps):
        if step == warm:
            start = time.perf_counter()
        rows = torch.randint(0, len(readings), (BATCH,))
        loss = nn.functional.smooth_l1_loss(model(readings[rows]), moisture[rows])
        optimizer.zero_grad()
        loss.backward()
        for weight in model.parameters():  # sick
            sizes.append(weight.grad.norm().item())  # sick here
            peaks.append(weight.grad.abs().max().item())  # sick here
        if step % 50 == 0:  # well
            sizes += [weight.grad.norm().item() for weight in model.parameters()]  # well
            peaks += [weight.grad.abs().max().item() for weight in model.parameters()]  # well
        optimizer.step()
    print(f"largest gradient {max(sizes):.3f}, largest element {max(peaks):.3f}")
    print(f"{(steps - warm) * BATCH / (time.perf_counter() - start):.1f} samples/s")


if __name__ == "__main__":
    train()
