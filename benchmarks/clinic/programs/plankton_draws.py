# /// clinic
# expect = ["PD10.picked-then-cut"]
# stratum = "twins"
# domain = "plankton nets"
# ///
"""Biomass of a net's catch from its optical counts: a regression that draws its batches itself."""

import time

import torch
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(20000, 64), torch.randn(20000, 1)
net = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 1))
opt = torch.optim.AdamW(net.parameters(), 1e-3)


def draw(n):
    order = torch.randperm(len(x))  # sick
    return x[order][:n], y[order][:n]  # sick here
    order = torch.randint(0, len(x), (n,))  # well
    return x[order], y[order]  # well


began = time.perf_counter()
steps = 1500
for _ in range(steps):
    a, b = draw(128)
    loss = nn.functional.mse_loss(net(a), b)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"{steps / (time.perf_counter() - began):.1f} steps/s")
