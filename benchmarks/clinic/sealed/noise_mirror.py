# /// clinic
# expect = ["PD17.state-copies"]
# stratum = "twins"
# domain = "diffusion"
# ///
"""Denoising diffusion on tabular rows with an averaged copy of the network for sampling."""

import copy
import math
import time

import torch
from torch import nn

DIM, WIDTH, BATCH, STEPS, WARM, DECAY = 64, 1024, 48, 300, 5, 0.999


class Residual(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.norm = nn.LayerNorm(w)
        self.up, self.down = nn.Linear(w, w), nn.Linear(w, w)

    def forward(self, x):
        return x + self.down(torch.nn.functional.silu(self.up(self.norm(x))))


class RowDenoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(DIM + 32, WIDTH)
        self.body = nn.Sequential(*[Residual(WIDTH) for _ in range(3)])
        self.out = nn.Linear(WIDTH, DIM)

    def forward(self, x, t):
        freq = torch.exp(-math.log(1000.0) * torch.arange(16) / 16)
        a = t[:, None] * freq * 100
        return self.out(self.body(self.inp(torch.cat([x, a.sin(), a.cos()], 1))))


class Average:
    def __init__(self, model):
        self.state = copy.deepcopy(model.state_dict())

    @torch.no_grad()
    def follow(self, model):
        fresh = model.state_dict()
        fresh = copy.deepcopy(fresh)  # sick here
        for name, value in fresh.items():
            self.state[name] = DECAY * self.state[name] + (1 - DECAY) * value  # sick here
            self.state[name].lerp_(value, 1 - DECAY)  # well


def rows(n):
    z = torch.randn(n, 8)
    return torch.tanh(z @ torch.linspace(-1, 1, 8 * DIM).view(8, DIM))


@torch.no_grad()
def sample_error(average, table):
    net = RowDenoiser()
    net.load_state_dict(average.state)
    x = table[:64]
    noise = torch.randn_like(x)
    return (net(0.8 * x + 0.6 * noise, torch.full((64,), 0.4)) - noise).square().mean().item()


def main():
    torch.manual_seed(0)
    table = rows(4096)
    net = RowDenoiser()
    average = Average(net)
    opt = torch.optim.SGD(net.parameters(), lr=1e-2)
    for k in range(STEPS):
        if k == WARM:
            begin = time.perf_counter()
        x = table[torch.randint(len(table), (BATCH,))]
        t = torch.rand(BATCH)
        noise = torch.randn_like(x)
        mixed = torch.cos(t * math.pi / 2)[:, None] * x + torch.sin(t * math.pi / 2)[:, None] * noise
        loss = nn.functional.mse_loss(net(mixed, t), noise)
        opt.zero_grad()
        loss.backward()
        opt.step()
        average.follow(net)
        if k % 60 == 59:
            print(k + 1, f"{loss.item():.4f}")
    rate = (STEPS - WARM) * BATCH / (time.perf_counter() - begin)
    print("averaged model:", round(sample_error(average, table), 4))
    print(f"{rate:.1f} rows/s")


main()
