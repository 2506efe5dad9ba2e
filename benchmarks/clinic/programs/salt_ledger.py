# /// clinic
# stratum = "decoys"
# resembles = ["PD14", "PD15", "PD20"]
# domain = "tabular"
# allow = ["PD05", "PD10"]
# sizes = {BASINS = [60, 90], WIDTH = [350, 450]}
# ///
"""Salt of basins. The newest numbers go to a small file every few steps, the weights to one that is synced once an
epoch, and a list of all epochs is written whole, which is short."""

import json
import os
import time

import torch
from torch import nn

BASINS = 75
WIDTH = 400
EPOCHS = 10
PER_EPOCH = 120
BATCH = 128


def main():
    torch.manual_seed(14)
    basins = torch.randn(20000, BASINS)
    salt = basins[:, :5].mean(1, keepdim=True)
    net = nn.Sequential(nn.Linear(BASINS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    epochs = []
    for epoch in range(EPOCHS):
        if epoch == 1:
            began = time.perf_counter()
        for step in range(PER_EPOCH):
            rows = torch.randint(0, len(basins), (BATCH,))
            loss = nn.functional.mse_loss(net(basins[rows]), salt[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 20 == 0:
                with open("newest.json", "w") as file:
                    json.dump({"epoch": epoch, "step": step, "loss": loss.item()}, file)
        epochs.append(loss.item())
        with open("epochs.json", "w") as file:
            json.dump(epochs, file)
        with open("salt.pt", "wb") as file:
            torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, file)
            os.fsync(file.fileno())
    print(f"loss {loss.item():.4f}")
    print(f"{(EPOCHS - 1) * PER_EPOCH * BATCH / (time.perf_counter() - began):.1f} samples/s")


if __name__ == "__main__":
    main()
