# /// clinic
# expect = ["PD10.round-trip", "PD10.list-conversion"]
# stratum = "twins"
# domain = "gan"
# ///
"""A GAN that forges small grey-scale shapes.

The critic also sees forgeries from earlier steps, kept in a pool
(half of the time an old picture is handed out and the new one takes its place).
"""

import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZE, NOISE, BATCH = 32, 48, 64


class Pool:
    def __init__(self, room=400, seed=0):
        self.room, self.pictures, self.dice = room, [], random.Random(seed)

    def swap(self, picture):
        if len(self.pictures) < self.room:
            self.pictures.append(picture)
            return picture
        if self.dice.random() < 0.5:
            return picture
        where = self.dice.randrange(self.room)
        old, self.pictures[where] = self.pictures[where], picture
        return old


def real_shapes(count, gen):
    """Filled rectangles and discs, between -1 and 1."""
    axis = torch.linspace(-1, 1, SIZE)
    y, x = axis.view(1, -1, 1), axis.view(1, 1, -1)
    cx, cy, rx, ry = (torch.rand(count, 1, 1, generator=gen) for _ in range(4))
    dx, dy = (x - cx + 0.5) / (rx * 0.4 + 0.2), (y - cy + 0.5) / (ry * 0.4 + 0.2)
    disc = (dx**2 + dy**2 < 1).float()
    box = ((dx.abs() < 1) & (dy.abs() < 1)).float()
    choose = (torch.rand(count, 1, 1, generator=gen) < 0.5).float()
    return ((choose * disc + (1 - choose) * box) * 2 - 1).unsqueeze(1)


forger = nn.Sequential(
    nn.Linear(NOISE, 32 * 4 * 4),
    nn.Unflatten(1, (32, 4, 4)),
    nn.ReLU(),
    nn.ConvTranspose2d(32, 16, 4, 2, 1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.ConvTranspose2d(16, 8, 4, 2, 1),
    nn.BatchNorm2d(8),
    nn.ReLU(),
    nn.ConvTranspose2d(8, 1, 4, 2, 1),
    nn.Tanh(),
)
critic = nn.Sequential(
    nn.Conv2d(1, 8, 4, 2, 1),
    nn.LeakyReLU(0.2),
    nn.Conv2d(8, 16, 4, 2, 1),
    nn.LeakyReLU(0.2),
    nn.Conv2d(16, 32, 4, 2, 1),
    nn.LeakyReLU(0.2),
    nn.Flatten(),
    nn.Linear(32 * 4 * 4, 1),
)


def through_pool(pool, forged):
    old = [pool.swap(picture) for picture in forged.numpy().tolist()]  # sick here
    return torch.tensor(old)  # sick here
    return torch.stack([pool.swap(picture) for picture in forged])  # well


def main(steps=350, skip=20):
    torch.manual_seed(1)
    gen = torch.Generator().manual_seed(2)
    pool = Pool()
    forger_opt = torch.optim.Adam(forger.parameters(), lr=2e-4, betas=(0.5, 0.999))
    critic_opt = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
    gallery = real_shapes(2048, gen)
    lost = torch.zeros(2)

    for step in range(steps):
        if step == skip:
            clock = time.perf_counter()
        real = gallery[torch.randint(0, len(gallery), (BATCH,), generator=gen)]
        forged = forger(torch.randn(BATCH, NOISE))

        shown = through_pool(pool, forged.detach())
        critic_loss = F.softplus(-critic(real)).mean() + F.softplus(critic(shown)).mean()
        critic_opt.zero_grad()
        critic_loss.backward()
        critic_opt.step()

        critic.requires_grad_(False)
        forger_loss = F.softplus(-critic(forged)).mean()
        forger_opt.zero_grad()
        forger_loss.backward()
        forger_opt.step()
        critic.requires_grad_(True)

        lost += torch.stack([critic_loss.detach(), forger_loss.detach()])
        if (step + 1) % 100 == 0:
            c, f = (lost / 100).tolist()
            print(f"[{step + 1}] critic {c:.3f} forger {f:.3f}")
            lost.zero_()

    print(f"{(steps - skip) * BATCH / (time.perf_counter() - clock):.1f} pictures/s")


if __name__ == "__main__":
    main()
