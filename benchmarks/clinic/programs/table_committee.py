# /// clinic
# stratum = "placebo"
# domain = "tabular regression"
# ///
"""Trains a committee of regressors on a synthetic table, all members in one batched call."""

import time

import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

SEED = 21
MEMBERS = 6
ROWS = 20_000
COLUMNS = 32
LEVELS = (50, 30, 12)
EMBED = 8
WIDTH = 192
BATCH = 512
STEPS = 700
WARMUP = 20


def table(generator):
    numbers = torch.randn(ROWS, COLUMNS, generator=generator)
    codes = torch.stack([torch.randint(n, (ROWS,), generator=generator) for n in LEVELS], 1)
    effect = [torch.randn(n, generator=generator) for n in LEVELS]
    y = numbers[:, 0] * numbers[:, 1].tanh() + sum(e[c] for e, c in zip(effect, codes.unbind(1)))
    return numbers, codes, y + 0.1 * torch.randn(ROWS, generator=generator)


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, EMBED) for n in LEVELS)
        self.body = nn.Sequential(
            nn.Linear(COLUMNS + EMBED * len(LEVELS), WIDTH),
            nn.SiLU(),
            nn.Linear(WIDTH, WIDTH),
            nn.SiLU(),
            nn.Linear(WIDTH, WIDTH),
            nn.SiLU(),
            nn.Linear(WIDTH, 2),
        )

    def forward(self, numbers, codes):
        parts = [t(c) for t, c in zip(self.tables, codes.unbind(1))]
        return self.body(torch.cat([numbers, *parts], 1))


def batches(data, generator):
    """A different sample of rows for each member."""
    while True:
        order = torch.randint(ROWS, (MEMBERS, BATCH), generator=generator)
        yield [part[order] for part in data]


def nll(params, buffers, numbers, codes, y):
    mean, spread = functional_call(SKELETON, (params, buffers), (numbers, codes)).unbind(1)
    return (0.5 * (y - mean) ** 2 * torch.exp(-spread) + 0.5 * spread).mean()


SKELETON = Regressor().to("meta")


def main():
    torch.manual_seed(SEED)
    g = torch.Generator().manual_seed(SEED)
    params, buffers = stack_module_state([Regressor() for _ in range(MEMBERS)])
    optimizer = torch.optim.AdamW(params.values(), lr=1e-3, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, WARMUP + STEPS)
    committee = vmap(nll)
    feed = batches(table(g), g)
    for step in range(WARMUP + STEPS):
        if step == WARMUP:
            began = time.perf_counter()
        losses = committee(params, buffers, *next(feed))
        optimizer.zero_grad()
        losses.sum().backward()
        optimizer.step()
        schedule.step()
    print(f"{STEPS * BATCH * MEMBERS / (time.perf_counter() - began):.1f} samples/s")


if __name__ == "__main__":
    main()
