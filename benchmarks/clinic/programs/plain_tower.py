# /// clinic
# expect = ["PD07"]
# stratum = "twins"
# domain = "tabular regression"
# ///
"""Trains a deep tower of plain layers on house prices with the initialisation of a language model."""

import time

import torch
from torch import nn

ROWS = 20_000
FEATURES = 64
WIDTH = 256
DEPTH = 32
BATCH = 256
STEPS = 420
WARMUP = 20


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(FEATURES, WIDTH)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH))
        self.leave = nn.Linear(WIDTH, 1)
        self.apply(self.initialise)

    @staticmethod
    def initialise(module):
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.02)
            nn.init.zeros_(module.bias)

    def forward(self, rows):
        hidden = torch.relu(self.enter(rows))
        for layer in self.layers:
            hidden = torch.relu(layer(hidden))
        return self.leave(hidden).squeeze(1)


def houses(generator):
    rows = torch.randn(ROWS, FEATURES, generator=generator)
    worth = torch.randn(FEATURES, generator=generator)
    return rows, rows @ worth / FEATURES**0.5 + 0.1 * torch.randn(ROWS, generator=generator)


def main():
    torch.set_flush_denormal(True)  # well
    torch.manual_seed(7)
    rows, prices = houses(torch.Generator().manual_seed(3))
    model = Tower()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, fused=True)
    for step in range(STEPS):
        if step == WARMUP:
            began = time.perf_counter()
        picked = torch.randint(ROWS, (BATCH,))
        loss = nn.functional.mse_loss(model(rows[picked]), prices[picked])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{(STEPS - WARMUP) / (time.perf_counter() - began):.1f} steps/s")


if __name__ == "__main__":
    main()
