# /// clinic
# expect = ["PD17"]
# stratum = "twins"
# domain = "physics-informed network, hydrodynamics"
# sizes = {POINTS = [900, 1200], WIDTH = [88, 112]}
# ///
# linear shallow water in a square estuary, solved by a tanh network
import math
import time
import torch
from torch import nn

POINTS = 1000
WIDTH = 96
STEPS = 700
G, DEPTH, CORIOLIS = 1.0, 0.5, 0.3

torch.manual_seed(0)


class Surge(nn.Module):
    def __init__(self, width, depth=4):
        super().__init__()
        layers, n = [], 3
        for _ in range(depth):
            layers += [nn.Linear(n, width), nn.Tanh()]
            n = width
        self.body = nn.Sequential(*layers)
        self.out = nn.Linear(n, 3)

    def forward(self, t, x, y):
        return self.out(self.body(torch.cat([t, x, y], 1))).split(1, 1)


def slopes(q, coords):
    one = torch.ones_like(q)
    return [torch.autograd.grad(q, c, one, create_graph=True)[0] for c in coords]  # sick here
    return torch.autograd.grad(q, coords, one, create_graph=True)  # well


def residual(net, n):
    t, x, y = (torch.rand(n, 1).requires_grad_() for _ in range(3))
    h, u, v = net(t, x, y)
    h_t, h_x, h_y = slopes(h, (t, x, y))
    u_t, u_x = slopes(u, (t, x))
    v_t, v_y = slopes(v, (t, y))
    mass = h_t + DEPTH * (u_x + v_y)
    east = u_t + G * h_x - CORIOLIS * v
    north = v_t + G * h_y + CORIOLIS * u
    return mass.square().mean() + east.square().mean() + north.square().mean()


def at_start(net, n):
    x, y = torch.rand(n, 1), torch.rand(n, 1)
    h, u, v = net(torch.zeros(n, 1), x, y)
    bump = torch.exp(-20 * ((x - 0.5) ** 2 + (y - 0.5) ** 2))
    return (h - bump).square().mean() + u.square().mean() + v.square().mean()


def at_walls(net, n):
    t, s = torch.rand(n, 1), torch.rand(n, 1)
    side = torch.randint(0, 2, (n, 1)).float()
    _, u, _ = net(t, side, s)
    _, _, v = net(t, s, side)
    return u.square().mean() + v.square().mean()


net = Surge(WIDTH)
opt = torch.optim.Adam(net.parameters(), lr=2e-3, fused=True)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda k: 0.5 * (1 + math.cos(math.pi * k / STEPS)))
for step in range(STEPS):
    if step == 10:
        tic = time.perf_counter()
    loss = residual(net, POINTS) + 10 * at_start(net, POINTS // 4) + at_walls(net, POINTS // 4)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 100 == 0:
        print(f"{step:5d}  {loss.item():.5f}", flush=True)
toc = time.perf_counter() - tic
print(f"final loss {loss.item():.5f}, {(STEPS - 10) / toc:.1f} steps/s")
