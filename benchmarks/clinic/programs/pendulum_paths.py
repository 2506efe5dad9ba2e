# /// clinic
# stratum = "decoys"
# domain = "neural ODE / dynamics"
# ///
"""Fits a neural ODE to double-pendulum trajectories with a fixed-step Runge-Kutta solver."""

import time

import torch
from torch import nn

torch.set_default_dtype(torch.float64)

HIDDEN = 24
BATCH = 8
SOLVER_STEPS = 16
DT = 0.02
TRAJECTORIES = 256
STEPS = 1400
WARMUP = 20


def true_field(s):
    a, b, da, db = s.unbind(-1)
    gap = a - b
    den = 2.0 - torch.cos(gap) ** 2
    dda = (-19.6 * torch.sin(a) - torch.sin(gap) * (db**2 + da**2 * torch.cos(gap))) / den
    ddb = (2.0 * torch.sin(gap) * (da**2 + 9.8 * torch.cos(a)) - 9.8 * torch.sin(b)) / den
    return torch.stack([da, db, dda, ddb], dim=-1)


def rk4(field, state, dt):
    k1 = field(state)
    k2 = field(state + dt / 2 * k1)
    k3 = field(state + dt / 2 * k2)
    k4 = field(state + dt * k3)
    return state + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def solve(field, state):
    path = []
    for _ in range(SOLVER_STEPS):
        state = rk4(field, state, DT)
        path.append(state)
    return torch.stack(path)


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(4, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 4)
        )

    def forward(self, state):
        return self.net(state)


def observe(seed):
    gen = torch.Generator().manual_seed(seed)
    starts = torch.rand(TRAJECTORIES, 4, generator=gen) * 2 - 1
    with torch.no_grad():
        return starts, solve(true_field, starts)


def main():
    torch.manual_seed(0)
    starts, paths = observe(8)
    field = Field()
    optimizer = torch.optim.Adam(field.parameters(), lr=1e-3, fused=True)
    for step in range(STEPS):
        if step == WARMUP:
            begin = time.perf_counter()
        pick = torch.randint(0, TRAJECTORIES, (BATCH,))
        loss = (solve(field, starts[pick]) - paths[:, pick]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(field.parameters(), 1.0)
        optimizer.step()
    rate = (STEPS - WARMUP) / (time.perf_counter() - begin)
    print(f"{rate:.1f} steps/s")


if __name__ == "__main__":
    main()
