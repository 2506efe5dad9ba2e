# /// clinic
# expect = ["PD20.logging"]
# stratum = "twins"
# domain = "tabular"
# smoke = true
# sizes = {PROBES = [40, 70]}
# severities = {NUMBERS = [300, 2000, 12000]}
# ///
"""The temperature of a furnace from its probes. A protocol of the training is kept."""

import logging
import os
import time

import torch
from torch import nn

PROBES = 56
NUMBERS = 2000
BATCH = 128
SECONDS = 5.0


class Protocol(logging.FileHandler):
    """Every line is on the disk before the next step."""

    def emit(self, record):
        super().emit(record)
        os.fsync(self.stream.fileno())


def protocol(level):
    log = logging.getLogger("furnace")
    log.setLevel(level)
    log.addHandler(Protocol("protocol.txt", mode="w"))
    log.propagate = False
    return log


def main():
    torch.manual_seed(19)
    log = protocol(logging.DEBUG)  # sick
    log = protocol(logging.WARNING)  # well
    readings = torch.randn(8000, PROBES)
    heat = readings[:, :5].mean(1, keepdim=True)
    model = nn.Sequential(nn.Linear(PROBES, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    steps, began = 0, None
    while began is None or time.perf_counter() - began < SECONDS:
        if steps == 20:
            began = time.perf_counter()
        rows = torch.randint(0, len(heat), (BATCH,))
        loss = nn.functional.mse_loss(model(readings[rows]), heat[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if log.isEnabledFor(logging.DEBUG):
            weights = " ".join(f"{one:.7f}" for one in model[2].weight.flatten()[:NUMBERS].tolist())
            log.debug("step %d loss %.6f weights %s", steps, loss.item(), weights)  # here
        steps += 1
    print(f"loss {loss.item():.4f} after {steps} steps")
    print(f"{(steps - 20) * BATCH / (time.perf_counter() - began):.1f} samples/s")


if __name__ == "__main__":
    main()
