# /// clinic
# expect = ["PD12"]
# stratum = "contended"
# domain = "tabular"
# neighbours = 2
# sizes = {FIELDS = [60, 100], WIDTH = [500, 700]}
# ///
"""An autoencoder that learns what ordinary bookings look like."""

import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

FIELDS = 80
WIDTH = 600


@dataclass
class Plan:
    bookings: int = 12000
    batch: int = 256
    epochs: int = 7
    rate: float = 1e-3


def bookings(plan):
    kinds = torch.randn(6, FIELDS)
    return kinds[torch.randint(0, 6, (plan.bookings,))] + 0.3 * torch.randn(plan.bookings, FIELDS)


def autoencoder():
    return nn.Sequential(
        nn.Linear(FIELDS, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, 16),
        nn.Linear(16, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, FIELDS),
    )


def run(plan):
    torch.manual_seed(2)
    data = TensorDataset(bookings(plan))
    loader = DataLoader(data, sampler=BatchSampler(RandomSampler(data), plan.batch, True), batch_size=None)
    model = autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=plan.rate, fused=True)
    for epoch in range(plan.epochs):
        if epoch == 1:
            began = time.perf_counter()
        for (rows,) in loader:
            loss = nn.functional.mse_loss(model(rows), rows)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")
    seen = (plan.epochs - 1) * len(loader) * plan.batch
    print(f"{seen / (time.perf_counter() - began):.1f} samples/s")


if __name__ == "__main__":
    run(Plan())
