# /// clinic
# stratum = "decoys"
# domain = "physics"
# ///
"""Physics-informed fit of u'' = -u on collocation points with torch.func; momentum written out as a tree map."""

import time

import torch
from torch.func import functional_call, grad, grad_and_value, vmap
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)

POINTS, WIDTH, STEPS, WARM = 96, 24, 2200, 20


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(1, WIDTH)
        self.b = nn.Linear(WIDTH, WIDTH)
        self.c = nn.Linear(WIDTH, 1)

    def forward(self, x):
        return self.c(torch.tanh(self.b(torch.tanh(self.a(x)))))


net = Field()
params = {k: v.detach().clone() for k, v in net.named_parameters()}
velocity = {k: torch.zeros_like(v) for k, v in params.items()}


def u(p, x):
    return functional_call(net, p, (x.reshape(1),)).squeeze()


du = grad(u, argnums=1)
ddu = grad(du, argnums=1)


def residual(p, xs):
    inside = vmap(lambda x: ddu(p, x) + u(p, x))(xs)
    zero = torch.zeros(())
    return inside.square().mean() + u(p, zero).square() + (du(p, zero) - 1.0).square()


loss_and_grad = grad_and_value(residual)


def descend(p, v, xs, lr=2e-3, beta=0.9):
    g, loss = loss_and_grad(p, xs)
    loss = loss if isinstance(loss, torch.Tensor) else torch.as_tensor(loss)
    v = {k: beta * v[k] + g[k] for k in p}
    return {k: p[k] - lr * v[k] for k in p}, v, loss


def check(p):
    xs = torch.linspace(0, 3, 50)
    with torch.no_grad():
        return (vmap(lambda x: u(p, x))(xs) - xs.sin()).abs().max()


for step in range(STEPS):
    if step == WARM:
        begun = time.perf_counter()
    points = torch.rand(POINTS) * 3
    params, velocity, value = descend(params, velocity, points)
    if step % 1000 == 0:
        print(step, f"residual {value:.4f}", f"error {check(params):.3f}")

print(f"{(STEPS - WARM) * POINTS / (time.perf_counter() - begun):.1f} points/s")
