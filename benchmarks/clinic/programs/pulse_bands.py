# /// clinic
# stratum = "decoys"
# resembles = ["PD18"]
# domain = "series"
# allow = ["PD05", "PD18.does-not-pay-off"]
# sizes = {BANDS = [60, 90], WIDTH = [350, 450]}
# ///
"""Pulse from bands of light. Some small batches are tried uncompiled first, to see that the loss falls at all."""

import time

import torch
from torch import nn

BANDS = 75
WIDTH = 400
BATCH = 256
STEPS = 900


def main():
    torch.manual_seed(27)
    light = torch.randn(20_000, BANDS)
    pulse = light[:, :4].sum(1, keepdim=True)
    net = nn.Sequential(nn.Linear(BANDS, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def train(model, rows):
        loss = nn.functional.mse_loss(model(light[rows]), pulse[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    losses = [train(net, torch.arange(16)) for _ in range(20)]
    assert losses[-1] < losses[0], losses
    compiled = torch.compile(net, backend="aot_eager")
    for step in range(STEPS):
        if step == 50:
            began = time.perf_counter()
        loss = train(compiled, torch.randint(0, len(light), (BATCH,)))
    print(f"loss {loss:.4f}")
    print(f"{(STEPS - 50) * BATCH / (time.perf_counter() - began):.1f} samples/s")


if __name__ == "__main__":
    main()
