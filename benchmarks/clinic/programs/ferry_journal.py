# /// clinic
# expect = ["PD15.repeated-handlers"]
# stratum = "twins"
# domain = "delays of river ferries"
# ///
"""How late a river ferry will be, from the gauge, the wind and the traffic of the last hours; each step is written to a
journal, which the harbour office reads along."""

import logging
import sys
import time
from pathlib import Path

import torch
from torch import nn

CROSSINGS = 64 * 40
INPUTS = 48
journal = logging.getLogger("ferries")


def open_journal(path: Path) -> None:
    """The journal gets the time and the step of each line."""
    journal.setLevel(logging.INFO)
    journal.propagate = False
    if journal.handlers:  # well
        return  # well
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s %(message)s"))
    journal.addHandler(handler)  # here


class Delay(nn.Module):
    def __init__(self, width: int = 160) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(INPUTS, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 2)
        )

    def forward(self, x):
        mean, spread = self.layers(x).unbind(1)
        return mean, nn.functional.softplus(spread) + 1e-3


def run_epoch(model, optimizer, inputs, delays, epoch: int, path: Path) -> None:
    open_journal(path)
    order = torch.randperm(len(inputs))
    for step, rows in enumerate(order.split(64)):
        mean, spread = model(inputs[rows])
        loss = nn.functional.gaussian_nll_loss(mean, delays[rows], spread)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        journal.info("epoch %3d step %3d loss %8.4f", epoch, step, loss.item())


def main(epochs: int = 170) -> None:
    torch.manual_seed(12)
    inputs = torch.randn(CROSSINGS, INPUTS)
    delays = inputs[:, :6].sum(1) + inputs[:, 6:9].prod(1) + 0.3 * torch.randn(CROSSINGS)
    model = Delay()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "ferries.log")
    began = time.perf_counter()
    for epoch in range(epochs):
        run_epoch(model, optimizer, inputs, delays, epoch, path)
    print(f"{epochs * CROSSINGS / (time.perf_counter() - began):.1f} crossings/s")


if __name__ == "__main__":
    main()
