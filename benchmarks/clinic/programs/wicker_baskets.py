# /// clinic
# expect = ["PD10.stride-afterwards"]
# stratum = "twins"
# domain = "wicker baskets"
# ///
"""Energy-based model of wicker weaves.

The network gives a low energy to patches of sound basket work (plain, twill and rib weave, any stake spacing). It is
trained with short-run Langevin dynamics and a replay buffer; broken or missing rods are found as patches of high
energy. Runs with `accelerate launch` or plain python.
"""

import argparse
import math
import time

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE = 40


def weave(kind, n, g):
    """n grey patches (n, 1, SIZE, SIZE) in -1..1 of one kind of weave."""
    line = torch.arange(SIZE, dtype=torch.float32)
    y, x = torch.meshgrid(line, line, indexing="ij")
    rnd = lambda lo, hi: lo + (hi - lo) * torch.rand(n, 1, 1, generator=g)
    rod, stake = rnd(4, 7), rnd(5, 9)
    v, u = (y + rnd(0, 10)) / rod, (x + rnd(0, 10)) / stake
    row, column = v.floor(), u.floor()
    if kind == "plain":
        over = (row + column) % 2
    elif kind == "twill":
        over = ((row + column) % 4 < 2).float()
    else:
        over = ((row // 2 + column) % 2).float()
    rods = torch.sin(math.pi * (v - row))
    stakes = torch.sin(math.pi * (u - column))
    shade = over * rods + (1 - over) * (0.6 * stakes + 0.2 * rods)
    patch = (2 * shade - 1) * rnd(0.7, 1.0) + 0.05 * torch.randn(n, SIZE, SIZE, generator=g)
    return patch.clamp(-1, 1).unsqueeze(1)


class WeavePatches(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        patches = torch.cat([weave(kind, n // 3, g) for kind in ("plain", "twill", "rib")])
        self.patches = patches[torch.randperm(len(patches), generator=g)]

    def __len__(self):
        return len(self.patches)

    def __getitem__(self, i):
        return self.patches[i]


def damage(patches, g):
    """The same patches with a piece of rod torn out."""
    broken = patches.clone()
    for p in broken:
        top, left = torch.randint(4, SIZE - 16, (2,), generator=g).tolist()
        p[:, top : top + 8, left : left + 14] = -0.8 + 0.1 * torch.randn(8, 14, generator=g)
    return broken


class Down(nn.Module):
    """3x3 convolution that halves the resolution."""

    def __init__(self, c_in, c_out):
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, 3, padding="same")  # sick here
        self.conv = nn.Conv2d(c_in, c_out, 3, stride=2, padding=1)  # well

    def forward(self, x):
        x = self.conv(x)[:, :, ::2, ::2]  # sick here
        x = self.conv(x)  # well
        return F.silu(x)


class Residual(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a = nn.Conv2d(c, c, 3, padding="same")
        self.b = nn.Conv2d(c, c, 3, padding="same")

    def forward(self, x):
        return F.silu(x + self.b(F.silu(self.a(x))))


class Energy(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.body = nn.Sequential(
            Down(1, width),
            Down(width, 2 * width),
            Residual(2 * width),
            Down(2 * width, 2 * width),
        )
        self.head = nn.Linear(2 * width, 1)

    def forward(self, x):
        return self.head(self.body(x).sum((2, 3))).squeeze(-1)


class ReplayBuffer:
    def __init__(self, size, fresh=0.05):
        self.store = torch.rand(size, 1, SIZE, SIZE) * 2 - 1
        self.fresh = fresh

    def draw(self, n):
        self.index = torch.randint(len(self.store), (n,))
        start = self.store[self.index].clone()
        restart = torch.rand(n) < self.fresh
        start[restart] = torch.rand_like(start[restart]) * 2 - 1
        return start

    def put(self, samples):
        self.store[self.index] = samples


def langevin(energy, x, steps, step_size, noise):
    for p in energy.parameters():
        p.requires_grad_(False)
    for _ in range(steps):
        x = (x + noise * torch.randn_like(x)).clamp(-1, 1).requires_grad_()
        (grad,) = torch.autograd.grad(energy(x).sum(), x)
        x = (x - step_size * grad.clamp(-0.03, 0.03)).detach()
    for p in energy.parameters():
        p.requires_grad_(True)
    return x.clamp(-1, 1)


@torch.no_grad()
def auc(energy, sound, broken):
    e_sound = torch.cat([energy(b) for b in sound.split(64)])
    e_broken = torch.cat([energy(b) for b in broken.split(64)])
    return (e_broken[:, None] > e_sound[None]).float().mean().item()


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--patches", type=int, default=1440)
    p.add_argument("--langevin-steps", type=int, default=6)
    p.add_argument("--step-size", type=float, default=10.0)
    p.add_argument("--noise", type=float, default=0.005)
    p.add_argument("--alpha", type=float, default=0.1)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--seed", type=int, default=21)
    args = p.parse_args()

    accelerator = Accelerator(cpu=True)
    set_seed(args.seed)
    loader = DataLoader(WeavePatches(args.patches, 1), batch_size=args.batch_size, shuffle=True, drop_last=True)
    sound = WeavePatches(192, 2).patches
    broken = damage(sound, torch.Generator().manual_seed(3))
    energy = Energy()
    optimizer = torch.optim.Adam(energy.parameters(), lr=args.lr, betas=(0.0, 0.999))
    energy, optimizer, loader = accelerator.prepare(energy, optimizer, loader)
    buffer = ReplayBuffer(1024)

    seen, began = 0, time.perf_counter()
    for epoch in range(args.epochs):
        gap = 0.0
        for real in loader:
            fake = langevin(energy, buffer.draw(len(real)), args.langevin_steps, args.step_size, args.noise)
            buffer.put(fake)
            e_real, e_fake = energy(torch.cat([real, fake])).chunk(2)
            loss = e_real.mean() - e_fake.mean() + args.alpha * (e_real.square() + e_fake.square()).mean()
            optimizer.zero_grad()
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(energy.parameters(), 0.5)
            optimizer.step()
            gap += (e_fake.mean() - e_real.mean()).item()
            seen += len(real)
        accelerator.print(f"epoch {epoch}: energy gap {gap / len(loader):.3f}, AUC {auc(energy, sound, broken):.3f}")
    rate = seen / (time.perf_counter() - began)
    accelerator.print(f"{rate:.1f} patches/s")


if __name__ == "__main__":
    main()
