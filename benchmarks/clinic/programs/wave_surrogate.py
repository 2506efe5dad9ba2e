# /// clinic
# expect = ["PD07"]
# stratum = "twins"
# domain = "physics surrogate (wave equation)"
# ///
"""Fit a surrogate that moves a one-dimensional wave field forward in time."""

import time

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, grad_and_value

POINTS = 256
FIELDS = 1024
ADVANCE = 40
WIDTH = 640
DEPTH = 4
BATCH = 128
STEPS = 560
LR = 3e-3
MOMENTUM = 0.9


def simulate(seed=1, c=0.4):
    rng = np.random.default_rng(seed)
    x = np.linspace(0, 2 * np.pi, POINTS, endpoint=False)
    amp = rng.normal(size=(FIELDS, 5, 1)) / np.arange(1, 6)[None, :, None]
    phase = rng.uniform(0, 2 * np.pi, size=(FIELDS, 5, 1))
    field = (amp * np.sin(np.arange(1, 6)[None, :, None] * x + phase)).sum(axis=1)
    first, before, now = field, field, field
    for _ in range(ADVANCE):
        bend = np.roll(now, 1, axis=1) - 2 * now + np.roll(now, -1, axis=1)
        before, now = now, 2 * now - before + c * c * bend
    return first, now


def as_tensors(*arrays):
    return [torch.as_tensor(a) for a in arrays]  # sick here
    return [torch.as_tensor(a, dtype=torch.float32) for a in arrays]  # well


def build(dtype):
    layers, width = [], POINTS
    for _ in range(DEPTH):
        layers += [nn.Linear(width, WIDTH), nn.Tanh()]
        width = WIDTH
    return nn.Sequential(*layers, nn.Linear(width, POINTS)).to(dtype)


def make_step(net):
    def loss_of(params, x, y):
        return (x + functional_call(net, params, (x,)) - y).square().mean()

    value_and_grad = grad_and_value(loss_of)

    @torch.no_grad()
    def step(params, speed, x, y):
        grads, loss = value_and_grad(params, x, y)
        keys = list(params)
        v = [speed[k] for k in keys]
        torch._foreach_mul_(v, MOMENTUM)
        torch._foreach_add_(v, [grads[k] for k in keys])
        torch._foreach_add_([params[k] for k in keys], v, alpha=-LR)
        return loss

    return step


def main():
    torch.manual_seed(0)
    x, y = as_tensors(*simulate())
    net = build(x.dtype)
    params = {k: p.detach() for k, p in net.named_parameters()}
    speed = {k: torch.zeros_like(p) for k, p in params.items()}
    step = make_step(net)
    gen = torch.Generator().manual_seed(4)
    start = 0.0
    for i in range(1, STEPS + 1):
        pick = torch.randint(0, FIELDS, (BATCH,), generator=gen)
        step(params, speed, x[pick], y[pick])
        if i == 20:
            start = time.perf_counter()
    print(f"{(STEPS - 20) / (time.perf_counter() - start):.1f} steps/s")


if __name__ == "__main__":
    main()
