# /// clinic
# stratum = "decoys"
# domain = "physics (neural ODE)"
# ///
"""Learn the motion of a double pendulum with a neural differential equation."""

import time

import torch
from torch import nn

PENDULUMS = 64
STEPS = 560
SPAN = 12
DT = 0.02
HIDDEN = 48
GRAVITY = 9.81

torch.set_default_dtype(torch.float64)


def pendulum(state):
    a, b, va, vb = state.unbind(-1)
    d = a - b
    den = 3 - torch.cos(2 * d)
    acc_a = (
        -3 * GRAVITY * torch.sin(a) - GRAVITY * torch.sin(a - 2 * b) - 2 * torch.sin(d) * (vb**2 + va**2 * torch.cos(d))
    ) / den
    acc_b = 2 * torch.sin(d) * (2 * va**2 + 2 * GRAVITY * torch.cos(a) + vb**2 * torch.cos(d)) / den
    return torch.stack([va, vb, acc_a, acc_b], dim=-1)


def rk4(f, state, dt):
    k1 = f(state)
    k2 = f(state + 0.5 * dt * k1)
    k3 = f(state + 0.5 * dt * k2)
    k4 = f(state + dt * k3)
    return state + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def roll_out(f, state, n):
    path = []
    for _ in range(n):
        state = rk4(f, state, DT)
        path.append(state)
    return torch.stack(path, dim=1)


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(6, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 2)
        )

    def forward(self, state):
        angle, speed = state[..., :2], state[..., 2:]
        acc = self.net(torch.cat([torch.sin(angle), torch.cos(angle), speed], dim=-1))
        return torch.cat([speed, acc], dim=-1)


def main():
    torch.manual_seed(0)
    with torch.no_grad():
        begin = torch.cat([0.6 * torch.randn(PENDULUMS, 2), torch.zeros(PENDULUMS, 2)], dim=1)
        truth = torch.cat([begin[:, None], roll_out(pendulum, begin, 300)], dim=1)
    field = Field()
    optimizer = torch.optim.Adam(field.parameters(), lr=2e-3, fused=True)
    rows = torch.arange(PENDULUMS)
    for step in range(1, STEPS + 1):
        at = torch.randint(0, truth.shape[1] - SPAN - 1, (PENDULUMS,))
        path = roll_out(field, truth[rows, at], SPAN)
        goal = truth[rows[:, None], at[:, None] + 1 + torch.arange(SPAN)]
        loss = (path - goal).square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(field.parameters(), 1.0)
        optimizer.step()
        if step == 20:
            start = time.perf_counter()
    print(f"{(STEPS - 20) / (time.perf_counter() - start):.1f} steps/s")


if __name__ == "__main__":
    main()
