# /// clinic
# expect = ["PD05"]
# stratum = "twins"
# domain = "time series forecasting"
# ///
"""Forecast the next day's electric load from the last four days."""

import math
import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset

METERS = 60
HOURS = 1500
PAST = 96
AHEAD = 24
HIDDEN = 96
UPDATES = 260
EFFECTIVE = 32


class Windows(Dataset):
    def __init__(self, n, seed=2):
        gen = torch.Generator().manual_seed(seed)
        t = torch.arange(HOURS)
        day = torch.sin(2 * math.pi * (t / 24 + torch.rand(METERS, 1, generator=gen)))
        week = torch.cos(2 * math.pi * t / 168)
        self.load = (day + 0.4 * week + 0.1 * torch.randn(METERS, HOURS, generator=gen)).unsqueeze(2)
        self.meter = torch.randint(0, METERS, (n,), generator=gen).tolist()
        self.start = torch.randint(0, HOURS - PAST - AHEAD, (n,), generator=gen).tolist()

    def __len__(self):
        return len(self.meter)

    def __getitem__(self, i):
        series = self.load[self.meter[i]]
        s = self.start[i]
        return series[s : s + PAST], series[s + PAST : s + PAST + AHEAD, 0]


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(1, HIDDEN, batch_first=True)
        self.head = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, AHEAD))

    def forward(self, past):
        _, last = self.rnn(past)
        return self.head(last[-1])


def main():
    torch.manual_seed(0)
    data = Windows(UPDATES * EFFECTIVE)
    loader = DataLoader(data, batch_size=8, shuffle=True)  # sick here
    loader = DataLoader(data, batch_size=EFFECTIVE, shuffle=True)  # well
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=EFFECTIVE // loader.batch_size)
    model = Forecaster()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, UPDATES)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    loss_fn = nn.SmoothL1Loss()

    seen, begun, start = 0, 0, 0.0
    for step, (past, target) in enumerate(loader, 1):
        with accelerator.accumulate(model):
            loss = loss_fn(model(past), target)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        seen += len(past)
        if step == 20:
            begun, start = seen, time.perf_counter()
    print(f"{(seen - begun) / (time.perf_counter() - start):.1f} samples/s")


if __name__ == "__main__":
    main()
