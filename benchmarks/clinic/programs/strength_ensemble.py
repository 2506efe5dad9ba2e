# /// clinic
# expect = ["PD11.capped-by-environment"]
# stratum = "twins"
# domain = "civil engineering: strength of concrete mixes with a deep ensemble"
# ///
"""Deep ensemble for the 28-day strength of concrete mixes, in functional style.

Every member of the ensemble is one slice of a stacked parameter dictionary; the members are trained together
with torch.func (vmap over members, grad of each member's loss) and a hand-written Adam. At the end the spread of
the members is compared with the error on held-out mixes.
"""

import argparse
import math
import os
import random
import time

import numpy as np
import torch
import torch.nn as nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap


INGREDIENTS = ("cement", "slag", "fly_ash", "water", "plasticizer", "coarse_agg", "fine_agg", "age")


def make_reproducible(seed):
    """Same numbers on the lab's workstation and on the cluster's nodes."""
    random.seed(seed)
    np.random.seed(seed)
    os.environ["PYTHONHASHSEED"] = str(seed)
    os.environ["MKL_CBWR"] = "COMPATIBLE"  # sick here
    os.environ.pop("MKL_CBWR", None)  # well
    torch.manual_seed(seed)


def synth_mixes(n, rng):
    low = np.array([100, 0, 0, 120, 0, 800, 590, 1], dtype=np.float32)
    high = np.array([540, 360, 200, 250, 32, 1150, 990, 365], dtype=np.float32)
    raw = low + (high - low) * rng.random((n, len(INGREDIENTS)), dtype=np.float32)
    cement, slag, ash, water, plast, coarse, fine, age = raw.T
    binder = cement + 0.7 * slag + 0.4 * ash
    ratio = water / binder
    strength = 110 / (6.0**ratio) * (np.log1p(age) / math.log(29)) * (1 + 0.006 * plast)
    strength += 4 * np.sin(coarse / 90) * np.cos(fine / 70)
    strength += rng.normal(0, 2.0 + 2.0 * (ratio > 0.8), n)
    x = (raw - raw.mean(0)) / raw.std(0)
    y = (strength - strength.mean()) / strength.std()
    return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y.astype(np.float32))


class MixNet(nn.Module):
    """Random Fourier features, then a residual MLP with a mean and a log-variance."""

    def __init__(self, width, depth, n_freq):
        super().__init__()
        self.register_buffer("freq", torch.randn(len(INGREDIENTS), n_freq))
        self.inp = nn.Linear(2 * n_freq + len(INGREDIENTS), width)
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.out = nn.Linear(width, 2)

    def forward(self, x):
        z = x @ self.freq
        h = torch.relu(self.inp(torch.cat([x, z.sin(), z.cos()], dim=-1)))
        for block in self.blocks:
            h = h + torch.relu(block(h))
        mean, log_var = self.out(h).unbind(-1)
        return mean, log_var.clamp(-6, 4)


def build_ensemble(members, width, depth, n_freq):
    nets = [MixNet(width, depth, n_freq) for _ in range(members)]
    params, buffers = stack_module_state(nets)
    skeleton = nets[0].to("meta")
    params = {k: v.detach() for k, v in params.items()}
    return skeleton, params, buffers


def adam_init(params):
    zeros = {k: torch.zeros_like(v) for k, v in params.items()}
    return {"m": zeros, "v": {k: torch.zeros_like(v) for k, v in params.items()}, "t": 0}


def adam_update(params, grads, state, lr, betas=(0.9, 0.999), eps=1e-8):
    state["t"] += 1
    names = list(params)
    p, g = [params[k] for k in names], [grads[k] for k in names]
    m, v = [state["m"][k] for k in names], [state["v"][k] for k in names]
    torch._foreach_lerp_(m, g, 1 - betas[0])
    torch._foreach_mul_(v, betas[1])
    torch._foreach_addcmul_(v, g, g, 1 - betas[1])
    denom = torch._foreach_sqrt(v)
    torch._foreach_div_(denom, math.sqrt(1 - betas[1] ** state["t"]))
    torch._foreach_add_(denom, eps)
    torch._foreach_addcdiv_(p, m, denom, -lr / (1 - betas[0] ** state["t"]))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--members", type=int, default=4)
    ap.add_argument("--width", type=int, default=256)
    ap.add_argument("--depth", type=int, default=4)
    ap.add_argument("--freq", type=int, default=64)
    ap.add_argument("--batch", type=int, default=1024)
    ap.add_argument("--steps", type=int, default=260)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--seed", type=int, default=17)
    args = ap.parse_args()

    make_reproducible(args.seed)
    rng = np.random.default_rng(args.seed)
    x, y = synth_mixes(24_000, rng)
    x_train, y_train, x_test, y_test = x[:20_000], y[:20_000], x[20_000:], y[20_000:]

    skeleton, params, buffers = build_ensemble(args.members, args.width, args.depth, args.freq)
    state = adam_init(params)

    def member_loss(p, b, xb, yb):
        mean, log_var = functional_call(skeleton, (p, b), (xb,))
        return (0.5 * (log_var + (yb - mean) ** 2 * torch.exp(-log_var))).mean()

    ensemble_grads = vmap(grad_and_value(member_loss), in_dims=(0, 0, 0, 0))
    gen = torch.Generator().manual_seed(args.seed)

    began = time.perf_counter()
    for step in range(1, args.steps + 1):
        lr = args.lr * 0.5 * (1 + math.cos(math.pi * step / args.steps))
        idx = torch.randint(len(x_train), (args.members, args.batch), generator=gen)
        grads, losses = ensemble_grads(params, buffers, x_train[idx], y_train[idx])
        adam_update(params, grads, state, lr)
        if step % 20 == 0:
            per = (time.perf_counter() - began) / step
            print(f"step {step:4d}  nll {losses.mean().item():+.4f}  {1e3 * per:.0f} ms/step", flush=True)

    with torch.no_grad():
        forward = vmap(lambda p, b, xb: functional_call(skeleton, (p, b), (xb,)), in_dims=(0, 0, None))
        means, log_vars = forward(params, buffers, x_test)
        mean = means.mean(0)
        var = log_vars.exp().mean(0) + means.var(0)
        rmse = (mean - y_test).square().mean().sqrt().item()
        inside = ((mean - y_test).abs() < 1.96 * var.sqrt()).float().mean().item()
    print(f"test rmse {rmse:.4f}, 95 % interval holds {100 * inside:.1f} %")


if __name__ == "__main__":
    main()
