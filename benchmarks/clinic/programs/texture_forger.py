# /// clinic
# expect = ["PD17", "PD08", "PD09"]
# stratum = "twins"
# domain = "image generation (GAN)"
# ///
"""Trains a convolutional GAN on synthetic textures."""

import itertools
import time

import torch
import torch.nn.functional as F
from torch import nn

LATENT = 64
SIZE = 32
G_WIDTH = 48
D_WIDTH = 12
BATCH = 12
CRITIC_STEPS = 3
STEPS = 180
WARMUP = 20


def generator():
    w = G_WIDTH
    return nn.Sequential(
        nn.Linear(LATENT, w * 4 * 16),
        nn.Unflatten(1, (w * 4, 4, 4)),
        nn.ReLU(),
        nn.ConvTranspose2d(w * 4, w * 2, 4, 2, 1),
        nn.BatchNorm2d(w * 2),
        nn.ReLU(),
        nn.ConvTranspose2d(w * 2, w, 4, 2, 1),
        nn.BatchNorm2d(w),
        nn.ReLU(),
        nn.ConvTranspose2d(w, w, 4, 2, 1),
        nn.BatchNorm2d(w),
        nn.ReLU(),
        nn.Conv2d(w, 3, 3, padding=1),
        nn.Tanh(),
    )


def discriminator():
    w = D_WIDTH
    return nn.Sequential(
        nn.Conv2d(3, w, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(w, w * 2, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(w * 2, w * 4, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(w * 4 * 16, 1),
    )


def textures(seed):
    gen = torch.Generator().manual_seed(seed)
    axis = torch.linspace(0, 6.28, SIZE)
    while True:
        freq = torch.randint(1, 5, (BATCH, 3, 1, 1), generator=gen)
        phase = torch.rand(BATCH, 3, 1, 1, generator=gen) * 6.28
        yield torch.sin(freq * axis[None, None, :, None] + phase) * torch.cos(freq * axis)


def adversarial(G, D, images):
    opt_g = torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
    opt_d = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
    while True:
        for real in itertools.islice(images, CRITIC_STEPS):
            noise = torch.randn(BATCH, LATENT)
            fake = G(noise)  # sick here
            fake = G(noise).detach()  # well
            d_loss = F.softplus(-D(real)).mean() + F.softplus(D(fake)).mean()
            opt_d.zero_grad()
            d_loss.backward()
            opt_d.step()

        noise = torch.randn(BATCH, LATENT)
        g_loss = F.softplus(-D(G(noise))).mean()
        opt_g.zero_grad()
        g_loss.backward()
        opt_g.step()
        yield d_loss.detach(), g_loss.detach()


def main():
    torch.manual_seed(0)
    run = adversarial(generator(), discriminator(), textures(2))
    for _ in itertools.islice(run, WARMUP):
        pass
    start = time.perf_counter()
    losses = list(itertools.islice(run, STEPS - WARMUP))
    rate = len(losses) / (time.perf_counter() - start)
    print(f"{rate:.1f} steps/s")


if __name__ == "__main__":
    main()
