# /// clinic
# expect = ["PD08.unused-gradients", "PD08.grad-in-evaluation"]
# stratum = "twins"
# domain = "diffusion"
# ///
"""Latent diffusion in miniature: a fixed image encoder gives latents, a small network learns the noise in them."""

import math
import time

import torch
import torch.nn.functional as F
from torch import nn


class Encoder(nn.Module):
    """The pretrained half; its weights are not trained here."""

    def __init__(self, width=32, latent=8):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.SiLU(),
            nn.Conv2d(width, width, 3, stride=2, padding=1),
            nn.SiLU(),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.SiLU(),
            nn.Conv2d(2 * width, 2 * width, 3, stride=2, padding=1),
            nn.SiLU(),
            nn.Conv2d(2 * width, latent, 1),
        )

    def forward(self, x):
        return self.net(x) * 0.9


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c1 = nn.Conv2d(width, width, 3, padding=1)
        self.c2 = nn.Conv2d(width, width, 3, padding=1)
        self.t = nn.Linear(64, width)

    def forward(self, x, emb):
        h = self.c1(F.silu(x)) + self.t(emb)[:, :, None, None]
        return x + self.c2(F.silu(h))


class Denoiser(nn.Module):
    def __init__(self, latent=8, width=64, depth=2):
        super().__init__()
        self.inp = nn.Conv2d(latent, width, 3, padding=1)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.out = nn.Conv2d(width, latent, 3, padding=1)

    def forward(self, z, t):
        freq = torch.exp(-math.log(10000.0) * torch.arange(32) / 32)
        angle = t[:, None].float() * freq
        emb = torch.cat([angle.sin(), angle.cos()], dim=1)
        h = self.inp(z)
        for block in self.blocks:
            h = block(h, emb)
        return self.out(F.silu(h))


class LatentTrainer:
    def __init__(self, batch=8, size=64):
        torch.manual_seed(4)
        self.images = torch.randn(256, 3, size, size).cumsum(-1).div(8)
        self.encoder = Encoder().eval()
        self.encoder.requires_grad_(False)  # well
        self.denoiser = Denoiser()
        self.opt = torch.optim.AdamW(self.denoiser.parameters(), lr=2e-4)
        self.alpha = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0)
        self.batch = batch

    def step(self):
        x = self.images[torch.randint(len(self.images), (self.batch,))]
        z = self.encoder(x)  # here
        t = torch.randint(1000, (self.batch,))
        a = self.alpha[t][:, None, None, None]
        noise = torch.randn_like(z)
        guess = self.denoiser(a.sqrt() * z + (1 - a).sqrt() * noise, t)
        loss = F.mse_loss(guess, noise)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.detach()

    def fit(self, steps=150, warm=5):
        for k in range(steps):
            if k == warm:
                start = time.perf_counter()
            loss = self.step()
            if k % 50 == 49:
                print(f"[{k + 1}] loss {loss:.4f}")
        return (steps - warm) * self.batch / (time.perf_counter() - start)


if __name__ == "__main__":
    print(f"{LatentTrainer().fit():.1f} images/s")
