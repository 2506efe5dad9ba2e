# /// clinic
# expect = ["PD11.capped-by-environment"]
# allow = ["PD08.allocator-churn"]
# stratum = "twins"
# domain = "physics"
# environment = {ATEN_CPU_CAPABILITY = "default"}
# cure = {ATEN_CPU_CAPABILITY = ""}
# sizes = {POINTS = [1800, 2400]}
# severities = {WIDTH = [400, 160, 48]}
# ///
"""A network that solves a wave equation: sines of many frequencies, and their products."""

import math
import time

import torch
from torch import nn

POINTS = 2048
WIDTH = 160
SECONDS = 5.0


class Sine(nn.Module):
    def __init__(self, inputs, outputs, frequency):
        super().__init__()
        self.linear, self.frequency = nn.Linear(inputs, outputs), frequency

    def forward(self, x):
        angle = self.frequency * self.linear(x)
        return torch.sin(angle) * torch.exp(-0.01 * angle * angle)


def main():
    torch.manual_seed(17)
    field = nn.Sequential(Sine(3, WIDTH, 10.0), Sine(WIDTH, WIDTH, 1.0), Sine(WIDTH, WIDTH, 1.0), nn.Linear(WIDTH, 1))
    optimizer = torch.optim.Adam(field.parameters(), lr=1e-4)
    steps, began = 0, None
    while began is None or time.perf_counter() - began < SECONDS:
        if steps == 10:
            began = time.perf_counter()
        where = torch.rand(POINTS, 3)
        wanted = torch.sin(math.pi * where[:, :1]) * torch.cos(math.pi * where[:, 2:])
        loss = nn.functional.mse_loss(field(where), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        if steps % 50 == 0:
            print(steps, f"{loss.item():.5f}")
    print(f"{(steps - 10) * POINTS / (time.perf_counter() - began):.0f} points/s")


main()
