# /// clinic
# endless = true
# stratum = "decoys"
# domain = "physics-informed networks"
# ///
"""Physics-informed network for a loaded membrane with varying stiffness, written with torch.func."""

import copy
import os
import tempfile
import time

import torch
import torch.nn as nn
from torch.func import functional_call, grad_and_value, hessian, jacrev, vmap

torch.manual_seed(13)
COLLOCATION, RIM, STEPS = 512, 128, 40_000
REPORT, SAVE = 20, 400


class Sine(nn.Module):
    def __init__(self, w=1.0):
        super().__init__()
        self.w = w

    def forward(self, x):
        return torch.sin(self.w * x)


def field(width=48):
    return nn.Sequential(
        nn.Linear(2, width),
        Sine(2.0),
        nn.Linear(width, width),
        Sine(),
        nn.Linear(width, width),
        Sine(),
        nn.Linear(width, 1),
    )


net = field()
params = {k: v.detach().clone() for k, v in net.named_parameters()}
slow = copy.deepcopy(params)
moment = {k: torch.zeros_like(v) for k, v in params.items()}
square = {k: torch.zeros_like(v) for k, v in params.items()}


def u(p, xy):
    return functional_call(net, p, (xy,)).squeeze(-1)


def stiffness(xy):
    return 1 + 0.4 * torch.cos(3 * xy[0]) * torch.cos(2 * xy[1])


def load(xy):
    return torch.exp(-8 * ((xy[0] - 0.3) ** 2 + (xy[1] + 0.1) ** 2))


def residual(p, xy):
    """div(k grad u) + f at one point."""
    h = hessian(u, argnums=1)(p, xy)
    du = jacrev(u, argnums=1)(p, xy)
    dk = jacrev(stiffness)(xy)
    return stiffness(xy) * (h[0, 0] + h[1, 1]) + (dk * du).sum() + load(xy)


def interior(n):
    return torch.rand(n, 2) * 2 - 1


def rim(n):
    t = torch.rand(n) * 2 - 1
    side = torch.randint(0, 4, (n,))
    fixed = torch.where(side % 2 == 0, 1.0, -1.0)
    return torch.where((side < 2)[:, None], torch.stack([t, fixed], 1), torch.stack([fixed, t], 1))


def loss_fn(p, inside, edge, weight):
    pde = vmap(residual, in_dims=(None, 0))(p, inside).square().mean()
    bc = vmap(u, in_dims=(None, 0))(p, edge).square().mean()
    return pde + weight * bc, (pde, bc)


def adam(p, g, step, lr=1e-3, b1=0.9, b2=0.99, eps=1e-8):
    """Adam, one tensor after the other."""
    for name, value in p.items():
        moment[name].mul_(b1).add_(g[name], alpha=1 - b1)
        square[name].mul_(b2).addcmul_(g[name], g[name], value=1 - b2)
        denom = (square[name] / (1 - b2**step)).sqrt_().add_(eps)
        value.addcdiv_(moment[name] / (1 - b1**step), denom, value=-lr)


def clip(g, limit):
    total = 0.0
    for value in g.values():
        total += value.norm().item() ** 2
    total = total**0.5
    if total > limit:
        for value in g.values():
            value.mul_(limit / total)
    return total


def follow(target, p, decay=0.995):
    for name in target:
        target[name].lerp_(p[name], 1 - decay)


def check(p, n=64):
    with torch.no_grad():
        worst = vmap(residual, in_dims=(None, 0))(p, interior(n)).abs().max().item()
    if worst != worst:
        raise FloatingPointError("residual is not finite")
    return worst


def main():
    step_fn = grad_and_value(loss_fn, has_aux=True)
    history, since = [], time.time()
    with tempfile.TemporaryDirectory() as folder:
        for step in range(1, STEPS + 1):
            inside, edge = interior(COLLOCATION), rim(RIM)
            grads, (loss, (pde, bc)) = step_fn(params, inside, edge, 20.0)
            size = clip(grads, 10.0)
            adam(params, grads, step)
            follow(slow, params)
            history.append((loss.item(), pde.item(), bc.item(), size))
            del history[:-REPORT]
            if step % REPORT == 0:
                mean = [sum(column) / len(column) for column in zip(*history)]
                rate = REPORT / (time.time() - since)
                print(
                    "step {} loss {:.4f} pde {:.4f} rim {:.5f} |g| {:.3f}".format(step, *mean),
                    f"worst {check(slow):.3f} {rate:.2f} steps/s",
                    flush=True,
                )
                since = time.time()
            if step % SAVE == 0:
                torch.save({"params": params, "slow": slow, "step": step}, os.path.join(folder, "plate.pt"))


if __name__ == "__main__":
    main()
