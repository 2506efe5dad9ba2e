# /// clinic
# stratum = "decoys"
# resembles = ["PD18"]
# domain = "vision"
# allow = ["PD05", "PD08.allocator-churn", "PD18.does-not-pay-off"]
# sizes = {CHANNELS = [24, 32]}
# ///
"""Which mason cut this mark? Compiled; pictures begin small and are at their full size after sixty steps."""

import time

import torch
from torch import nn

CHANNELS = 28
BATCH = 32
SIZES = (12, 16, 20, 24)
EACH = 15


def run(steps=700, warm=100):
    torch.manual_seed(9)
    layers = []
    for before in (1, CHANNELS, CHANNELS):
        layers += [nn.Conv2d(before, CHANNELS, 3, padding=1), nn.ReLU()]
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS, 6))
    marks = torch.randn(600, 1, 28, 28)
    masons = torch.arange(600) % 6
    compiled = torch.compile(net, backend="aot_eager", dynamic=False)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
    for step in range(steps):
        if step == warm:
            start = time.perf_counter()
        rows = torch.randint(0, len(marks), (BATCH,))
        size = SIZES[step // EACH] if step // EACH < len(SIZES) else 28
        loss = nn.functional.cross_entropy(compiled(marks[rows, :, :size, :size]), masons[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")
    print(f"{(steps - warm) * BATCH / (time.perf_counter() - start):.1f} marks/s")


if __name__ == "__main__":
    run()
