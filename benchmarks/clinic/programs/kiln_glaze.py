# /// clinic
# stratum = "decoys"
# resembles = ["PD16"]
# domain = "tabular"
# sizes = {WIDTH = [384, 448]}
# ///
"""Which glaze comes out of the kiln in which colour? Reproducible to the bit, in large products that cost no more so."""

import time

import torch
from torch import nn

WIDTH = 416
BATCH = 512


def main(steps=120):
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True)
    recipes, colours = torch.randn(4096, WIDTH), torch.randint(9, (4096,))
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 9))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(steps):
        if step == 10:
            began = time.perf_counter()
        rows = torch.randint(len(recipes), (BATCH,))
        loss = nn.functional.cross_entropy(model(recipes[rows]), colours[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not torch.isfinite(loss):  # one number, beside products of 10^8
            raise SystemExit(f"step {step}")
    print(f"{(steps - 10) / (time.perf_counter() - began):.1f} steps/s")


if __name__ == "__main__":
    main()
