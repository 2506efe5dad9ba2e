# /// clinic
# stratum = "placebo"
# domain = "graphs"
# ///
"""Energies of small random molecules by message passing over dense adjacency, with an evaluation every so often."""

import time
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Settings:
    atoms: int = 24
    kinds: int = 10
    width: int = 192
    rounds: int = 3
    batch: int = 96
    steps: int = 190
    warm: int = 5
    eval_every: int = 60


def molecules(n, s, seed):
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(s.kinds, (n, s.atoms), generator=g)
    where = torch.randn(n, s.atoms, 3, generator=g)
    near = torch.exp(-torch.cdist(where, where))
    energy = (near.sum((1, 2)) / s.atoms - 3.0) + 0.05 * kind.float().mean(1)
    return kind, near, energy


class Round(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.message = nn.Linear(width, width)
        self.update = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, h, near):
        m = torch.bmm(near, self.message(h))
        return h + self.update(torch.cat([h, m], -1))


class Energy(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.embed = nn.Embedding(s.kinds, s.width)
        self.rounds = nn.ModuleList(Round(s.width) for _ in range(s.rounds))
        self.read = nn.Linear(s.width, 1)

    def forward(self, kind, near):
        h = self.embed(kind)
        for r in self.rounds:
            h = r(h, near)
        return self.read(h).mean((1, 2))


def evaluate(model, data):
    model.eval()
    with torch.inference_mode():
        kind, near, energy = data
        error = (model(kind, near) - energy).abs().mean().item()
    model.train()
    return error


def main():
    s = Settings()
    torch.manual_seed(2)
    kind, near, energy = molecules(3000, s, 0)
    held = molecules(96, s, 1)
    model = Energy(s)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(s.steps):
        if step == s.warm:
            start = time.perf_counter()
        pick = torch.randint(len(kind), (s.batch,))
        loss = nn.functional.mse_loss(model(kind[pick], near[pick]), energy[pick])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if (step + 1) % s.eval_every == 0:
            print(f"step {step + 1} loss {loss.item():.4f} held-out {evaluate(model, held):.4f}")
    print(f"{(s.steps - s.warm) * s.batch / (time.perf_counter() - start):.1f} molecules/s")


main()
