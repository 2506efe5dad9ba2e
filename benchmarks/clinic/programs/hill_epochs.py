# /// clinic
# stratum = "decoys"
# resembles = ["PD14", "PD15"]
# domain = "tabular"
# allow = ["PD05", "PD10"]
# sizes = {SLOPES = [60, 90], WIDTH = [350, 450]}
# ///
"""Landslides from the shape of hills: all losses are kept for a plot, and each epoch ends in a checkpoint."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SLOPES = 75
WIDTH = 400
EPOCHS = 14
BATCH = 128


def main():
    torch.manual_seed(31)
    hills = torch.randn(25600, SLOPES)
    slid = (hills[:, :4].sum(1) > 1).long()
    loader = DataLoader(TensorDataset(hills, slid), batch_size=BATCH, shuffle=True)
    net = nn.Sequential(nn.Linear(SLOPES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
    losses, epochs = [], {"loss": []}
    for epoch in range(EPOCHS):
        if epoch == 1:
            began = time.perf_counter()
        for shape, label in loader:
            loss = nn.functional.cross_entropy(net(shape), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        epochs["loss"].append(sum(losses[-len(loader) :]) / len(loader))
        torch.save(net.state_dict(), f"epoch-{epoch}.pt")
    print(f"loss {epochs['loss'][-1]:.4f}, at most {max(losses):.4f}")
    print(f"{(EPOCHS - 1) * len(hills) / (time.perf_counter() - began):.1f} samples/s")


if __name__ == "__main__":
    main()
