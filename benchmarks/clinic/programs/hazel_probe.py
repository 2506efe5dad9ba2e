# /// clinic
# allow = ["PD08.allocator-churn", "PD05.batch-too-small", "PD17.slow-update", "PD09.oversized-layer"]
# stratum = "decoys"
# resembles = ["PD16", "PD17"]
# domain = "tabular"
# sizes = {FEATURES = [48, 96], BATCH = [96, 160]}
# ///
"""Weighs hazelnuts; looks for a NaN in the first ten steps only, and averages its weights every tenth step."""

import time

import torch
from torch import nn

FEATURES = 64
BATCH = 128
STEPS = 900


def main():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(FEATURES, 384), nn.ReLU(), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, 1))
    weights = list(network.parameters())
    averages = [weight.detach().clone() for weight in weights]
    optimizer = torch.optim.SGD(weights, lr=1e-3, momentum=0.9)
    nuts, grams = torch.rand(64 * BATCH, FEATURES), torch.rand(64 * BATCH, 1)
    torch.autograd.set_detect_anomaly(True)
    began = time.perf_counter()
    for step in range(STEPS):
        if step == 10:
            torch.autograd.set_detect_anomaly(False)
            began = time.perf_counter()
        first = step % 64 * BATCH
        batch = nuts[first : first + BATCH]
        assert batch.shape == (BATCH, FEATURES)
        loss = nn.functional.mse_loss(network(batch), grams[first : first + BATCH])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 5.0)
        optimizer.step()
        if step % 10 == 9:
            with torch.no_grad():
                torch._foreach_lerp_(averages, weights, 0.01)
    print(f"loss {loss.item():.4f}")
    print(f"{(STEPS - 10) * BATCH / (time.perf_counter() - began):.1f} nuts/s")


if __name__ == "__main__":
    main()
