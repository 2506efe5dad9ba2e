# /// clinic
# expect = ["PD13"]
# allow = ["PD12.cpu-contention"]
# stratum = "contended"
# domain = "series"
# neighbours = 1
# environment = {OMP_NUM_THREADS = "2"}
# cure = {OMP_NUM_THREADS = "1"}
# sizes = {TURBINES = [24, 40]}
# severities = {WIDTH = [768, 512, 256]}
# ///
"""Forecasts the power of a wind farm from the last day of measurements."""

import time

import torch
from torch import nn

TURBINES = 32
WIDTH = 512
BATCH = 128
HOURS = 24


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(HOURS * TURBINES, WIDTH),
            nn.GELU(),
            nn.Linear(WIDTH, WIDTH),
            nn.GELU(),
            nn.Linear(WIDTH, WIDTH),
            nn.GELU(),
            nn.Linear(WIDTH, TURBINES),
        )

    def forward(self, day):
        return self.layers(day)


def weather(hours):
    wind = torch.randn(hours, 1).cumsum(0) * 0.1
    return torch.sin(wind + torch.rand(1, TURBINES)) + 0.1 * torch.randn(hours, TURBINES)


def main(steps=160, limit=12.0):
    torch.manual_seed(1)
    power = weather(3000)
    model = Forecast()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    done, start = 0, time.perf_counter()
    for step in range(steps):
        if step == 5:
            done, start = 0, time.perf_counter()
        hours = torch.randint(HOURS, len(power) - 1, (BATCH,))
        days = torch.stack([power[hour - HOURS : hour] for hour in hours.tolist()])
        loss = nn.functional.mse_loss(model(days), power[hours])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done += BATCH
        if step > 20 and time.perf_counter() - start > limit:
            break
    print("error", round(loss.item(), 4))
    print(f"{done / (time.perf_counter() - start):.1f} samples/s")


main()
