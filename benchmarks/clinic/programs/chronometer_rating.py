# /// clinic
# expect = ["PD17.factorized-each-step"]
# stratum = "twins"
# domain = "marine chronometer rating from tick sounds"
# ///
"""Rate of marine chronometers from the sound of a few beats.

Each sample is the envelope of one tick at the timing microphone (unlocking,
impulse and drop of the detent escapement). The network gives the balance's
amplitude, the beat error, the depth of locking and the oil's condition.
"""

import math
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import Optimizer

SAMPLES = 128
UPDATE_FREQ = 1  # sick here
UPDATE_FREQ = 25  # well
TARGETS = ("amplitude", "beat error", "locking", "oil")


def inverse_root(matrix, order, eps):
    """matrix ** (-1 / order) of a symmetric positive semi-definite matrix."""
    values, vectors = torch.linalg.eigh(matrix)  # here
    values = values.clamp_min(0.0) + eps * values[-1].clamp_min(1e-12)
    return (vectors * values.pow(-1.0 / order)) @ vectors.T


class Shampoo(Optimizer):
    """Shampoo (Gupta et al. 2018) for matrices, with the step length of the plain gradient."""

    def __init__(self, params, lr, momentum=0.9, decay=0.98, weight_decay=0.0, eps=1e-4, update_freq=UPDATE_FREQ):
        defaults = dict(
            lr=lr, momentum=momentum, decay=decay, weight_decay=weight_decay, eps=eps, update_freq=update_freq
        )
        super().__init__(params, defaults)

    def _direction(self, p, state, group):
        grad = p.grad
        if p.ndim != 2:
            return grad
        if "left" not in state:
            rows, cols = p.shape
            state["left"], state["right"] = grad.new_zeros(rows, rows), grad.new_zeros(cols, cols)
        state["left"].lerp_(grad @ grad.T, 1 - group["decay"])
        state["right"].lerp_(grad.T @ grad, 1 - group["decay"])
        if state["step"] % group["update_freq"] == 0:  # here
            state["left_root"] = inverse_root(state["left"], 4, group["eps"])
            state["right_root"] = inverse_root(state["right"], 4, group["eps"])
        shaped = state["left_root"] @ grad @ state["right_root"]
        return shaped * (grad.norm() / shaped.norm().clamp_min(1e-12))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["buffer"] = torch.zeros_like(p)
                direction = self._direction(p, state, group)
                state["step"] += 1
                state["buffer"].mul_(group["momentum"]).add_(direction)
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(state["buffer"], alpha=-group["lr"])


def record_ticks(n, generator):
    """Envelopes with three noises whose times and strengths follow from the targets."""
    z = torch.randn(n, 4, generator=generator)
    amplitude, error, locking, oil = z.unsqueeze(-1).unbind(1)
    t = torch.linspace(0.0, 1.0, SAMPLES)
    unlock = 0.22 + 0.015 * error
    impulse = unlock + 0.17 * torch.exp(-0.18 * amplitude) + 0.02 * locking
    drop = impulse + 0.22 * torch.exp(-0.18 * amplitude)
    width = 0.022 * torch.exp(0.25 * oil)

    def noise(at, height, spread):
        rise = torch.sigmoid((t - at) / 0.004)
        return height * rise * torch.exp(-(t - at).clamp_min(0.0) / spread)

    x = noise(unlock, 0.6 * torch.exp(0.3 * locking), width)
    x = x + noise(impulse, 0.9, 1.3 * width) + noise(drop, 1.4 * torch.exp(0.2 * amplitude), 1.8 * width)
    x = x * torch.exp(0.2 * torch.randn(n, 1, generator=generator))
    x = x + 0.08 * torch.randn(n, SAMPLES, generator=generator)
    return x, z


class RateNet(nn.Module):
    def __init__(self, width=128, layers=4):
        super().__init__()
        sizes = [SAMPLES] + [width] * layers
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.out = nn.Linear(width, len(TARGETS))

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            h = F.relu(layer(x))
            x = h if i == 0 else x + h
        return self.out(x)


class Workshop:
    def __init__(self, ticks=40960, batch=2048, lr=0.05, epochs=180):
        generator = torch.Generator().manual_seed(40)
        x, self.y = record_ticks(ticks, generator)
        self.mean, self.std = x.mean(0), x.std(0)
        self.x = (x - self.mean) / self.std
        xt, self.y_test = record_ticks(2048, generator)
        self.x_test = (xt - self.mean) / self.std
        self.batch, self.epochs, self.lr = batch, epochs, lr
        torch.manual_seed(41)
        self.net = RateNet()
        self.optimizer = Shampoo(self.net.parameters(), lr=lr, weight_decay=1e-3)

    def run_epoch(self):
        total = torch.zeros(())
        parts = torch.randperm(len(self.x)).split(self.batch)
        for idx in parts:
            loss = F.mse_loss(self.net(self.x[idx]), self.y[idx])
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
        return total.item() / len(parts)

    @torch.no_grad()
    def report(self):
        rest = (self.net(self.x_test) - self.y_test).pow(2).mean(0)
        return "  ".join(f"{name} {1 - r:.3f}" for name, r in zip(TARGETS, rest.tolist()))

    def train(self):
        start = time.perf_counter()
        for epoch in range(self.epochs):
            for group in self.optimizer.param_groups:
                group["lr"] = self.lr * 0.5 * (1 + math.cos(math.pi * epoch / self.epochs))
            loss = self.run_epoch()
            if (epoch + 1) % max(1, self.epochs // 5) == 0:
                print(f"epoch {epoch + 1:4d}  loss {loss:.4f}  R2: {self.report()}")
        return time.perf_counter() - start


if __name__ == "__main__":
    seconds = Workshop().train()
    print(f"total training seconds: {seconds:.1f}")
