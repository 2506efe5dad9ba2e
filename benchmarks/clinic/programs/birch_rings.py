# /// clinic
# stratum = "decoys"
# resembles = ["PD18"]
# domain = "series"
# allow = ["PD03", "PD05", "PD18.does-not-pay-off"]
# sizes = {YEARS = [50, 70], WIDTH = [320, 420]}
# ///
"""How old is the birch? Compiled; the last batch of an epoch is smaller, and each epoch ends with a test."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

YEARS = 60
WIDTH = 360
BATCH = 128
EPOCHS = 12


def off_by(net, rings, ages):
    net.eval()
    with torch.no_grad():
        error = (net(rings) - ages).abs().mean().item()
    net.train()
    return error


def main():
    torch.manual_seed(23)
    rings = torch.randn(15_000, YEARS)
    ages = rings[:, :5].sum(1, keepdim=True)
    test = rings[14_000:], ages[14_000:]
    data = TensorDataset(rings[:14_000], ages[:14_000])
    loader = DataLoader(data, batch_size=BATCH, shuffle=True)
    layers = [nn.Linear(YEARS, WIDTH), nn.ReLU(), nn.Dropout(0.1), nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    net = nn.Sequential(*layers, nn.Linear(WIDTH, 1))
    compiled = torch.compile(net, backend="aot_eager", dynamic=False)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for epoch in range(EPOCHS):
        if epoch == 1:
            began = time.perf_counter()
        for ring, age in loader:
            loss = nn.functional.mse_loss(compiled(ring), age)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}, off by {off_by(compiled, *test):.3f}", flush=True)
    print(f"{(EPOCHS - 1) * len(data) / (time.perf_counter() - began):.1f} trees/s")


if __name__ == "__main__":
    main()
