# /// clinic
# expect = ["PD17.discarded-gradients"]
# stratum = "twins"
# domain = "quilt patterns"
# ///
"""Hinge GAN of quilt blocks: 32 x 32 pictures of pieced blocks, a quarter drawn and then mirrored or turned."""

import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class QuiltConfig:
    blocks: int = 8192
    side: int = 32
    fabrics: int = 12
    latent: int = 64
    width: int = 64
    batch: int = 32
    critic_steps: int = 2
    iterations: int = 280
    report: int = 70
    lr_g: float = 2e-4
    lr_d: float = 4e-4
    seed: int = 1876


def sew(cfg, n):
    g = torch.Generator().manual_seed(cfg.seed)
    half = cfg.side // 2
    colours = torch.rand(cfg.fabrics, 3, generator=g) * 2 - 1
    palette = torch.stack([torch.randperm(cfg.fabrics, generator=g)[:4] for _ in range(n)])
    i, j = torch.meshgrid(torch.arange(half), torch.arange(half), indexing="ij")
    cabin, stripes, squares = torch.maximum(i, j) // 4, (i + j) // 8, (i // 8) * 2 + j // 8
    motifs = torch.stack([cabin, stripes, squares, (i > j).long() * 2 + (i + j > half).long()])
    quarter = motifs[torch.randint(0, 4, (n,), generator=g)] % 4
    quarter = torch.gather(palette, 1, quarter.flatten(1)).view(n, half, half)
    turned = torch.rand(n, 1, 1, generator=g) < 0.5
    right = torch.where(turned, quarter.rot90(-1, (1, 2)), quarter.flip(2))
    top = torch.cat([quarter, right], dim=2)
    bottom = torch.where(turned, top.rot90(2, (1, 2)), top.flip(1))
    picture = colours[torch.cat([top, bottom], dim=1)].permute(0, 3, 1, 2)
    return (picture + 0.03 * torch.randn(picture.shape, generator=g)).clamp(-1, 1)


class Up(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.conv = nn.Conv2d(inside, outside, 3, padding=1)
        self.norm = nn.GroupNorm(4, outside)

    def forward(self, x):
        return F.relu(self.norm(self.conv(F.interpolate(x, scale_factor=2))))


class Generator(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.width = w = cfg.width
        self.start = nn.Linear(cfg.latent, w * 16)
        self.up = nn.Sequential(Up(w, w * 3 // 4), Up(w * 3 // 4, w // 2), Up(w // 2, w // 4))
        self.paint = nn.Conv2d(w // 4, 3, 3, padding=1)

    def forward(self, z):
        return torch.tanh(self.paint(self.up(F.relu(self.start(z)).view(-1, self.width, 4, 4))))


class Critic(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        w = cfg.width // 4
        self.body = nn.Sequential(
            nn.Conv2d(3, w, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(w, 2 * w, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(2 * w, 4 * w, 4, 2, 1),
            nn.LeakyReLU(0.2),
        )
        self.score = nn.Linear(4 * w * 16, 1)

    def forward(self, picture):
        return self.score(self.body(picture).flatten(1)).squeeze(1)


def endless(loader):
    while True:
        for (picture,) in loader:
            yield picture


class QuiltGAN:
    def __init__(self, cfg):
        self.cfg = cfg
        set_seed(cfg.seed)
        self.accelerator = Accelerator(cpu=True)
        data = DataLoader(TensorDataset(sew(cfg, cfg.blocks)), cfg.batch, shuffle=True, drop_last=True)
        g, d = Generator(cfg), Critic(cfg)
        opt_g = torch.optim.Adam(g.parameters(), lr=cfg.lr_g, betas=(0.0, 0.9))
        opt_d = torch.optim.Adam(d.parameters(), lr=cfg.lr_d, betas=(0.0, 0.9))
        self.g, self.d, self.opt_g, self.opt_d, self.data = self.accelerator.prepare(g, d, opt_g, opt_d, data)

    def critic_step(self, real):
        fake = self.g(torch.randn(len(real), self.cfg.latent))
        on_real, on_fake = self.d(real), self.d(fake)  # sick here
        on_real, on_fake = self.d(real), self.d(fake.detach())  # well
        loss = F.relu(1 - on_real).mean() + F.relu(1 + on_fake).mean()
        self.opt_d.zero_grad()
        self.accelerator.backward(loss)
        self.opt_d.step()
        return loss.detach()

    def generator_step(self):
        loss = -self.d(self.g(torch.randn(self.cfg.batch, self.cfg.latent))).mean()
        self.opt_g.zero_grad()
        self.accelerator.backward(loss)
        self.opt_g.step()
        return loss.detach()

    def train(self):
        cfg, pictures = self.cfg, endless(self.data)
        seen, losses = 0, []
        began = time.perf_counter()
        for iteration in range(1, cfg.iterations + 1):
            for _ in range(cfg.critic_steps):
                real = next(pictures)
                loss_d = self.critic_step(real)
                seen += len(real)
            losses.append(torch.stack([loss_d, self.generator_step()]))
            if iteration % cfg.report == 0:
                loss_d, loss_g = torch.stack(losses[-cfg.report :]).mean(0).tolist()
                self.accelerator.print(f"iteration {iteration}: critic {loss_d:.3f}, generator {loss_g:.3f}")
        return seen / (time.perf_counter() - began)


if __name__ == "__main__":
    gan = QuiltGAN(QuiltConfig())
    rate = gan.train()
    print(f"{rate:.1f} blocks/s")
