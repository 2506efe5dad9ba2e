# /// clinic
# expect = ["PD17.discarded-gradients"]
# stratum = "twins"
# domain = "electrocardiograms"
# ///
"""Trains a GAN that produces single heart beats (256 samples each), two critic updates per generator update."""

import time

import torch
import torch.nn as nn
import torch.nn.functional as F

LENGTH = 256
LATENT = 64
BATCH = 32
STEPS = 210
CRITIC_UPDATES = 2


def real_beats(n, gen):
    """Sum of P, Q, R, S and T waves with varying position, width and height."""
    t = torch.linspace(0, 1, LENGTH).view(1, 1, -1)
    centre = torch.tensor([0.22, 0.38, 0.42, 0.46, 0.68]).view(1, -1, 1)
    width = torch.tensor([0.03, 0.010, 0.014, 0.011, 0.05]).view(1, -1, 1)
    height = torch.tensor([0.18, -0.15, 1.0, -0.25, 0.32]).view(1, -1, 1)
    shift = 0.02 * torch.randn(n, 1, 1, generator=gen)
    scale = 1 + 0.15 * torch.randn(n, 5, 1, generator=gen)
    wide = 1 + 0.1 * torch.randn(n, 5, 1, generator=gen)
    waves = height * scale * torch.exp(-((t - centre - shift) ** 2) / (2 * (width * wide) ** 2))
    noise = 0.02 * torch.randn(n, LENGTH, generator=gen)
    return (waves.sum(dim=1) + noise).unsqueeze(1)


class Refine(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.block = nn.Sequential(
            nn.BatchNorm1d(channels),
            nn.ReLU(),
            nn.Conv1d(channels, channels, 7, padding=3),
        )

    def forward(self, x):
        return x + self.block(x)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.start = nn.Linear(LATENT, 128 * 16)
        self.net = nn.Sequential(
            Refine(128),
            nn.ConvTranspose1d(128, 96, 8, stride=4, padding=2),
            Refine(96),
            nn.ConvTranspose1d(96, 64, 8, stride=4, padding=2),
            Refine(64),
            nn.BatchNorm1d(64),
            nn.ReLU(),
            nn.Conv1d(64, 1, 7, padding=3),
        )

    def forward(self, z):
        return self.net(self.start(z).view(-1, 128, 16))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(1, 32, 7, stride=2, padding=3),
            nn.LeakyReLU(0.2),
            nn.Conv1d(32, 64, 7, stride=2, padding=3),
            nn.LeakyReLU(0.2),
            nn.Conv1d(64, 96, 7, stride=2, padding=3),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            nn.Linear(96 * 32, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(1)


def discriminator_step(gen_net, disc_net, optimizer, real):
    noise = torch.randn(len(real), LATENT)
    fake = gen_net(noise)  # sick here
    fake = gen_net(noise).detach()  # well
    loss = F.relu(1 - disc_net(real)).mean() + F.relu(1 + disc_net(fake)).mean()  # here
    optimizer.zero_grad()
    loss.backward()  # here
    optimizer.step()
    return loss.item()


def generator_step(gen_net, disc_net, optimizer, n):
    fake = gen_net(torch.randn(n, LATENT))
    loss = -disc_net(fake).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    rng = torch.Generator().manual_seed(5)
    beats = real_beats(6000, rng)

    gen_net, disc_net = Generator(), Discriminator()
    opt_g = torch.optim.Adam(gen_net.parameters(), lr=2e-4, betas=(0.5, 0.999))
    opt_d = torch.optim.Adam(disc_net.parameters(), lr=2e-4, betas=(0.5, 0.999))
    sched_g = torch.optim.lr_scheduler.LinearLR(opt_g, 1.0, 0.2, total_iters=STEPS)
    sched_d = torch.optim.lr_scheduler.LinearLR(opt_d, 1.0, 0.2, total_iters=STEPS)

    mean_beat = beats.mean(dim=0)
    probe = torch.randn(64, LATENT, generator=rng)
    start = None
    for step in range(1, STEPS + 1):
        for _ in range(CRITIC_UPDATES):
            rows = torch.randint(0, len(beats), (BATCH,), generator=rng)
            d_loss = discriminator_step(gen_net, disc_net, opt_d, beats[rows])
        g_loss = generator_step(gen_net, disc_net, opt_g, BATCH)
        sched_d.step()
        sched_g.step()

        if step % 40 == 0:
            gen_net.eval()
            with torch.no_grad():
                gap = (gen_net(probe).mean(dim=0) - mean_beat).abs().mean().item()
            gen_net.train()
            print(f"step {step} d {d_loss:.3f} g {g_loss:.3f} gap of the mean beat {gap:.4f}")
        if step == 5:
            start = time.perf_counter()

    rate = (STEPS - 5) / (time.perf_counter() - start)
    print(f"{rate:.2f} steps/s")


if __name__ == "__main__":
    main()
