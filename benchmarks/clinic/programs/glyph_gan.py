# /// clinic
# allow = ["PD08.allocator-churn"]
# stratum = "placebo"
# domain = "gan"
# smoke = true
# sizes = {BATCH = [96, 160], NOISE = [24, 64]}
# ///
"""A small GAN that draws rings."""

import time

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as bce

BATCH = 128
NOISE = 48
SIDE = 20
ROUNDS = 160


def rings(count):
    axis = torch.linspace(-1, 1, SIDE)
    distance = (axis[:, None] ** 2 + axis**2).sqrt()
    radius = 0.3 + 0.5 * torch.rand(count, 1, 1)
    return (2 * torch.exp(-60 * (distance - radius) ** 2) - 1).flatten(1)


generator = nn.Sequential(
    nn.Linear(NOISE, 512),
    nn.LeakyReLU(0.2),
    nn.Linear(512, 512),
    nn.LeakyReLU(0.2),
    nn.Linear(512, SIDE * SIDE),
    nn.Tanh(),
)
critic = nn.Sequential(
    nn.Linear(SIDE * SIDE, 512), nn.LeakyReLU(0.2), nn.Linear(512, 512), nn.LeakyReLU(0.2), nn.Linear(512, 1)
)


def main():
    torch.manual_seed(13)
    drawn = rings(4096)
    make = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.99), fused=True)
    judge = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.99), fused=True)
    real, fake = torch.ones(BATCH, 1), torch.zeros(BATCH, 1)
    for turn in range(ROUNDS):
        if turn == 10:
            clock = time.perf_counter()
        images = generator(torch.randn(BATCH, NOISE))
        judge.zero_grad()
        sample = drawn[torch.randint(0, len(drawn), (BATCH,))]
        unease = bce(critic(sample), 0.9 * real) + bce(critic(images.detach()), fake)
        unease.backward()
        judge.step()
        make.zero_grad()
        doubt = bce(critic(images), real)
        doubt.backward()
        make.step()
        if turn % 40 == 0:
            print(f"{turn}: critic {unease.item():.3f} generator {doubt.item():.3f}")
    print(f"{(ROUNDS - 10) * BATCH / (time.perf_counter() - clock):.1f} samples/s")


if __name__ == "__main__":
    main()
