# /// clinic
# expect = ["PD17.derivatives-one-by-one"]
# stratum = "twins"
# domain = "fluid dynamics (physics-informed network)"
# sizes = {WIDTH = [120, 144], POINTS = [1500, 1700]}
# ///
"""Recovers a decaying vortex and its viscosity from sparse probes with a physics-informed network."""

import math
import time

import torch
from torch import nn

WIDTH = 128
POINTS = 1600
PROBES = 512
STEPS = 130
WARMUP = 5
TRUE_NU = 0.05

torch.manual_seed(7)


class Field(nn.Module):
    """(x, y, t) -> velocity (u, v) and pressure p."""

    def __init__(self, width, depth=5):
        super().__init__()
        dims = [3] + [width] * depth
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(dims, dims[1:]))
        self.head = nn.Linear(width, 3)
        for layer in [*self.layers, self.head]:
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x, y, t):
        h = torch.cat([x / math.pi - 1, y / math.pi - 1, 2 * t - 1], dim=1)
        for layer in self.layers:
            h = torch.tanh(layer(h))
        return self.head(h).split(1, dim=1)


def exact(x, y, t):
    decay = torch.exp(-2 * TRUE_NU * t)
    u = torch.cos(x) * torch.sin(y) * decay
    v = -torch.sin(x) * torch.cos(y) * decay
    p = -0.25 * (torch.cos(2 * x) + torch.cos(2 * y)) * decay**2
    return u, v, p


def draw(n):
    x = 2 * math.pi * torch.rand(n, 1)
    y = 2 * math.pi * torch.rand(n, 1)
    t = torch.rand(n, 1)
    return x, y, t


def d(f, z):  # sick
    return torch.autograd.grad(f, z, torch.ones_like(f), create_graph=True)[0]  # sick here


def d(f, *z):  # well
    grads = torch.autograd.grad(f, z, torch.ones_like(f), create_graph=True)  # well
    return grads if len(z) > 1 else grads[0]  # well


def residuals(net, nu, x, y, t):
    for z in (x, y, t):
        z.requires_grad_(True)
    u, v, p = net(x, y, t)

    u_x, u_y, u_t = d(u, x), d(u, y), d(u, t)  # sick here
    v_x, v_y, v_t = d(v, x), d(v, y), d(v, t)  # sick here
    p_x, p_y = d(p, x), d(p, y)  # sick here
    u_x, u_y, u_t = d(u, x, y, t)  # well
    v_x, v_y, v_t = d(v, x, y, t)  # well
    p_x, p_y = d(p, x, y)  # well
    u_xx, u_yy = d(u_x, x), d(u_y, y)
    v_xx, v_yy = d(v_x, x), d(v_y, y)

    mass = u_x + v_y
    mom_u = u_t + u * u_x + v * u_y + p_x - nu * (u_xx + u_yy)
    mom_v = v_t + u * v_x + v * v_y + p_y - nu * (v_xx + v_yy)
    return mass, mom_u, mom_v


net = Field(WIDTH)
log_nu = nn.Parameter(torch.tensor(math.log(0.2)))
opt = torch.optim.Adam([{"params": net.parameters()}, {"params": [log_nu], "lr": 1e-2}], lr=1e-3)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=STEPS)

probe_x, probe_y, probe_t = draw(PROBES)
probe_u, probe_v, _ = exact(probe_x, probe_y, probe_t)
probe_u = probe_u + 0.01 * torch.randn_like(probe_u)
probe_v = probe_v + 0.01 * torch.randn_like(probe_v)

test = draw(2000)
test_u, test_v, _ = exact(*test)

start = None
for step in range(STEPS + WARMUP):
    if step == WARMUP:
        start = time.perf_counter()
    mass, mom_u, mom_v = residuals(net, log_nu.exp(), *draw(POINTS))
    physics = mass.square().mean() + mom_u.square().mean() + mom_v.square().mean()

    u, v, _ = net(probe_x, probe_y, probe_t)
    data = (u - probe_u).square().mean() + (v - probe_v).square().mean()

    loss = 10 * data + physics
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 5.0)
    opt.step()
    sched.step()

    if step % 25 == 0:
        with torch.no_grad():
            u, v, _ = net(*test)
            err = ((u - test_u).square() + (v - test_v).square()).mean().sqrt()
        print(
            f"step {step:4d}  physics {physics.item():.4f}  data {data.item():.4f}  "
            f"test rmse {err.item():.4f}  nu {log_nu.exp().item():.4f}"
        )

print(f"{STEPS / (time.perf_counter() - start):.2f} steps/s")
