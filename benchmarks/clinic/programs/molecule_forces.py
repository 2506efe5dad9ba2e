# /// clinic
# expect = ["PD16"]
# stratum = "twins"
# domain = "physics (interatomic potential, energies and forces)"
# ///
"""Trains a continuous-filter potential on energies and forces of small Lennard-Jones clusters."""

import contextlib
import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode


@dataclass
class Setup:
    seed: int = 5
    atoms: int = 10
    kinds: int = 4
    batch: int = 24
    width: int = 48
    radial: int = 24
    layers: int = 3
    steps: int = 700
    warmup: int = 20
    lr: float = 1e-3
    force_weight: float = 5.0


def lennard_jones(pos, eps, sigma):
    n = pos.size(1)
    i, j = torch.triu_indices(n, n, 1)
    d = (pos[:, i] - pos[:, j]).norm(dim=-1).clamp_min(0.8)
    s6 = (sigma[:, i, j] / d) ** 6
    return (4 * eps[:, i, j] * (s6 * s6 - s6)).sum(1)


class Clusters:
    """Random clusters around a cubic lattice, labelled analytically."""

    def __init__(self, setup, size=1024):
        g = torch.Generator().manual_seed(setup.seed)
        grid = torch.cartesian_prod(*[torch.arange(3).float()] * 3)
        picks = torch.stack([torch.randperm(27, generator=g)[: setup.atoms] for _ in range(size)])
        pos = grid[picks] * 1.15 + 0.05 * torch.randn(size, setup.atoms, 3, generator=g)
        kind = torch.randint(setup.kinds, (size, setup.atoms), generator=g)
        eps = 0.3 + 0.1 * (kind[:, :, None] + kind[:, None, :])
        sigma = 0.9 + 0.03 * (kind[:, :, None] * kind[:, None, :])
        pos.requires_grad_()
        energy = lennard_jones(pos, eps, sigma)
        force = -torch.autograd.grad(energy.sum(), pos)[0]
        self.data = pos.detach(), kind, energy.detach(), force.clamp(-20, 20)
        self.generator, self.size = g, size

    def draw(self, batch):
        idx = torch.randint(self.size, (batch,), generator=self.generator)
        return [x[idx] for x in self.data]


class Interaction(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(s.radial, s.width), nn.SiLU(), nn.Linear(s.width, s.width))
        self.inner = nn.Linear(s.width, s.width, bias=False)
        self.outer = nn.Sequential(nn.Linear(s.width, s.width), nn.SiLU(), nn.Linear(s.width, s.width))

    def forward(self, h, rbf, cut):
        w = self.filter(rbf) * cut
        return h + self.outer((w * self.inner(h)[:, None]).sum(2))


class Potential(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.embed = nn.Embedding(s.kinds, s.width)
        self.blocks = nn.ModuleList(Interaction(s) for _ in range(s.layers))
        self.readout = nn.Sequential(nn.Linear(s.width, s.width), nn.SiLU(), nn.Linear(s.width, 1))
        self.push = nn.Sequential(nn.Linear(s.radial, s.width), nn.SiLU(), nn.Linear(s.width, s.width))
        self.register_buffer("centres", torch.linspace(0.5, 4.5, s.radial))
        self.register_buffer("eye", torch.eye(s.atoms)[None, :, :, None])

    def forward(self, pos, kind):
        delta = pos[:, :, None] - pos[:, None] + self.eye
        d = delta.pow(2).sum(-1, keepdim=True).sqrt()
        rbf = torch.exp(-4.0 * (d - self.centres) ** 2)
        cut = (1 - self.eye) * torch.sigmoid(4 * (4.0 - d))
        h = self.embed(kind)
        for block in self.blocks:
            h = block(h, rbf, cut)
        strength = (self.push(rbf) * (h[:, :, None] + h[:, None])).sum(-1, keepdim=True)
        return self.readout(h).sum((1, 2)), (strength * cut * delta).sum(2)


class Fitter:
    def __init__(self, setup):
        self.setup = setup
        torch.manual_seed(setup.seed)
        self.model = Potential(setup)
        self.data = Clusters(setup)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=setup.lr, fused=True)
        self.work = []

    def accounting(self):
        if self.work:  # well
            return contextlib.nullcontext()  # well
        return FlopCounterMode(display=False)  # well
        return FlopCounterMode(display=False)  # sick here

    def objective(self, pos, kind, energy, force):
        guess, pull = self.model(pos, kind)
        return (guess - energy).abs().mean() + self.setup.force_weight * (pull - force).abs().mean()

    def step(self):
        batch = self.data.draw(self.setup.batch)
        with self.accounting() as account:
            loss = self.objective(*batch)
            self.optimizer.zero_grad()
            loss.backward()
        self.optimizer.step()
        if account is not None:
            self.work.append(account.get_total_flops())
        return loss.item()

    def run(self):
        for _ in range(self.setup.warmup):
            self.step()
        tic = time.perf_counter()
        for _ in range(self.setup.steps):
            self.step()
        return self.setup.steps / (time.perf_counter() - tic)


if __name__ == "__main__":
    print(f"{Fitter(Setup()).run():.1f} steps/s")
