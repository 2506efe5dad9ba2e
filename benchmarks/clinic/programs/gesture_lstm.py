# /// clinic
# expect = ["PD02.onednn-disabled"]
# allow = ["PD08.allocator-churn"]
# stratum = "twins"
# domain = "time series"
# sizes = {SENSORS = [12, 20], BATCH = [28, 40]}
# severities = {HIDDEN = [48, 112, 224]}
# ///
"""Recognises gestures from a glove: convolutions over time, then an LSTM."""

import time
from contextlib import contextmanager

import torch
from torch import nn

SENSORS = 16
BATCH = 32
HIDDEN = 112
LENGTH = 60
GESTURES = 8


class Glove(nn.Module):
    def __init__(self):
        super().__init__()
        self.smooth = nn.Sequential(nn.Conv1d(SENSORS, 64, 5, padding=2), nn.ReLU(), nn.Conv1d(64, 64, 5, padding=2))
        self.lstm = nn.LSTM(64, HIDDEN, num_layers=2, batch_first=True)
        self.name = nn.Linear(HIDDEN, GESTURES)

    def forward(self, readings):
        return self.name(self.lstm(self.smooth(readings).transpose(1, 2))[0][:, -1])


@contextmanager
def exact():
    with torch.backends.mkldnn.flags(deterministic=True):  # sick here
        yield  # sick
    yield  # well


class Session:
    def __init__(self):
        torch.manual_seed(41)
        self.model = Glove()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.kinds = torch.arange(960) % GESTURES
        self.readings = torch.randn(960, SENSORS, LENGTH) + self.kinds[:, None, None] / 4

    def step(self, rows):
        with exact():
            loss = nn.functional.cross_entropy(self.model(self.readings[rows]), self.kinds[rows])
            self.optimizer.zero_grad()
            loss.backward()
        self.optimizer.step()
        return loss.detach()

    def run(self, steps=110):
        for number in range(steps):
            if number == 10:
                began = time.perf_counter()
            loss = self.step(torch.randint(0, len(self.kinds), (BATCH,)))
            if number % 40 == 0:
                print(f"{number}: {loss.item():.4f}")
        return (steps - 10) * BATCH / (time.perf_counter() - began)


print(f"{Session().run():.1f} gestures/s")
