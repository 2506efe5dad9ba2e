# /// clinic
# expect = ["PD05.mergeable-accumulation"]
# allow = ["PD05.batch-too-small"]
# stratum = "twins"
# domain = "time series"
# sizes = {HOURS = [160, 200], WIDTH = [480, 560]}
# severities = {PARTS = [8, 16, 64]}
# ///
"""Compresses weeks of electricity meters; large effective batches, as in the paper."""

import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

HOURS = 168
WIDTH = 512
PARTS = 16
EFFECTIVE = 256
STEPS = 110


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(HOURS, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH), nn.SiLU())
        self.code = nn.Linear(WIDTH, 16)
        self.decode = nn.Sequential(nn.Linear(16, WIDTH), nn.SiLU(), nn.Linear(WIDTH, HOURS))

    def forward(self, weeks):
        return self.decode(self.code(self.encode(weeks)))


def meters(count):
    generator = np.random.default_rng(1)
    phase = generator.uniform(0, 6, (count, 1))
    load = np.sin(np.arange(HOURS) / 24 * 2 * np.pi + phase) + 0.3 * generator.normal(size=(count, HOURS))
    return TensorDataset(torch.from_numpy(load.astype(np.float32)))


def batches(loader):
    while True:
        for (weeks,) in loader:
            yield weeks


def train(model, micro, parts):
    weeks = meters(8192)
    order = BatchSampler(RandomSampler(weeks), micro, drop_last=True)
    stream = batches(DataLoader(weeks, batch_size=None, sampler=order))  # here
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        if step == 10:
            began = time.perf_counter()
        optimizer.zero_grad()
        for _ in range(parts):
            batch = next(stream)
            loss = nn.functional.mse_loss(model(batch), batch) / parts
            loss.backward()  # here
        optimizer.step()  # here
        if step % 30 == 0:
            print(f"step {step}: {parts * loss.item():.4f}")
    return (STEPS - 10) * micro * parts / (time.perf_counter() - began)


if __name__ == "__main__":
    torch.manual_seed(0)
    rate = train(Autoencoder(), EFFECTIVE // PARTS, PARTS)  # sick here
    rate = train(Autoencoder(), EFFECTIVE, 1)  # well
    print(f"{rate:.1f} weeks/s")
