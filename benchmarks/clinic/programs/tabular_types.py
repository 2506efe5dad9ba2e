# /// clinic
# expect = ["PD07.float64"]
# allow = ["PD03.per-sample-indexing"]
# stratum = "twins"
# domain = "tabular"
# smoke = true
# sizes = {COLUMNS = [40, 90], BATCH = [200, 300]}
# severities = {WIDTH = [160, 384, 768]}
# ///
"""Predicts house prices from a table of numbers."""

import time

import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

COLUMNS = 64
BATCH = 256
WIDTH = 384
EPOCHS = 12


def table(rows):
    generator = numpy.random.default_rng(0)
    columns = generator.normal(size=(rows, COLUMNS))
    price = columns @ generator.normal(size=COLUMNS) + generator.normal(size=rows)
    return columns, price[:, None]


def main():
    torch.manual_seed(0)
    columns, price = table(40 * BATCH)
    inputs, targets = torch.from_numpy(columns), torch.from_numpy(price)  # sick
    inputs, targets = torch.from_numpy(columns).float(), torch.from_numpy(price).float()  # well
    model = nn.Sequential(
        nn.Linear(COLUMNS, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, 1),
    )
    model = model.double()  # sick here
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=BATCH, shuffle=True)
    seen, began = 0, 0.0
    for epoch in range(EPOCHS):
        if epoch == 1:
            seen, began = 0, time.perf_counter()
        for rows, wanted in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(rows), wanted)
            loss.backward()
            optimizer.step()
            seen += len(rows)
        print(f"epoch {epoch}: loss {loss.item():.4f}")
    print(f"{seen / (time.perf_counter() - began):.1f} samples/s")


if __name__ == "__main__":
    main()
