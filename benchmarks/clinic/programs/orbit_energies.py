# /// clinic
# stratum = "decoys"
# domain = "physics, Hamiltonian network (torch.func)"
# ///
"""Train a Hamiltonian neural network on simulated orbits with torch.func."""

import time

import torch
import torch.nn as nn
from torch.func import functional_call, grad, grad_and_value, vmap

ORBITS = 300
TICKS = 100
DT = 0.05
HIDDEN = 320
BATCH = 512
LR = 1e-3
STEPS = 1400
WARMUP = 20


def true_energy(q, p):
    return 0.5 * p.square().sum(-1) - q.square().sum(-1).add(0.1).rsqrt()


def force(q):
    return -q * q.square().sum(-1, keepdim=True).add(0.1).pow(-1.5)


def simulate():
    g = torch.Generator().manual_seed(0)
    q = torch.randn(ORBITS, 2, generator=g, dtype=torch.float64)
    p = 0.7 * torch.randn(ORBITS, 2, generator=g, dtype=torch.float64)
    states, slopes = [], []
    for _ in range(TICKS):
        states.append(torch.cat([q, p], -1))
        slopes.append(torch.cat([p, force(q)], -1))
        for _ in range(10):
            p = p + 0.5 * DT / 10 * force(q)
            q = q + DT / 10 * p
            p = p + 0.5 * DT / 10 * force(q)
    return torch.cat(states).float(), torch.cat(slopes).float()


net = nn.Sequential(
    nn.Linear(4, HIDDEN),
    nn.Tanh(),
    nn.Linear(HIDDEN, HIDDEN),
    nn.Tanh(),
    nn.Linear(HIDDEN, HIDDEN),
    nn.Tanh(),
    nn.Linear(HIDDEN, 1),
)


def energy(params, state):
    return functional_call(net, params, (state,)).squeeze(-1)


def flow(params, state):
    dq, dp = grad(energy, argnums=1)(params, state).chunk(2, -1)
    return torch.cat([dp, -dq], -1)


def objective(params, states, slopes):
    return (vmap(flow, in_dims=(None, 0))(params, states) - slopes).square().mean()


@torch.no_grad()
def adam(params, grads, m, v, t):
    for k, g in grads.items():
        m[k].lerp_(g, 0.1)
        v[k].mul_(0.999).addcmul_(g, g, value=0.001)
        rate = LR * (1 - 0.999**t) ** 0.5 / (1 - 0.9**t)
        params[k].addcdiv_(m[k], v[k].sqrt().add_(1e-8), value=-rate)


class Drift:
    def __init__(self):
        self.total = torch.zeros((), dtype=torch.float64)
        self.square = torch.zeros((), dtype=torch.float64)

    def add(self, loss, states):
        e = true_energy(states[:64, :2].double(), states[:64, 2:].double())
        self.total += loss.double()
        self.square += e.var()


def main():
    torch.manual_seed(1)
    states, slopes = simulate()
    params = {k: p.detach().clone() for k, p in net.named_parameters()}
    m = {k: torch.zeros_like(p) for k, p in params.items()}
    v = {k: torch.zeros_like(p) for k, p in params.items()}
    drift, step_fn = Drift(), grad_and_value(objective)
    for step in range(STEPS):
        if step == WARMUP:
            start = time.perf_counter()
        idx = torch.randint(len(states), (BATCH,))
        grads, loss = step_fn(params, states[idx], slopes[idx])
        adam(params, grads, m, v, step + 1)
        drift.add(loss, states[idx])
    print(f"{(STEPS - WARMUP) / (time.perf_counter() - start):.1f} steps/s")


if __name__ == "__main__":
    main()
