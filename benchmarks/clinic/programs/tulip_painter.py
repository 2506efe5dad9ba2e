# /// clinic
# expect = ["PD17.discarded-gradients"]
# stratum = "twins"
# domain = "an adversarial network of tulips"
# ///
"""Trains a small adversarial network to paint tulips of 32 x 32 pixels.

The pictures are drawn by formula: a stem, a cup of petals in a random colour, a sky. Generator and
discriminator take turns; both updates of a step work on one shared batch of painted tulips.
"""

import time

import torch
from torch import nn
from torch.nn import functional as F

PICTURES, SIZE, NOISE = 4096, 32, 64
BATCH, STEPS = 32, 480


def draw_tulips(count, generator):
    def uniform(low, high):
        return low + (high - low) * torch.rand(count, 1, 1, generator=generator)

    axis = torch.linspace(-1, 1, SIZE)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    x = x[None] - uniform(-0.3, 0.3)
    y = y[None] - uniform(-0.2, 0.2)
    width, height = uniform(0.25, 0.45), uniform(0.3, 0.5)
    petals = 0.12 * torch.cos(x / width * 9.0)
    cup = (x / width) ** 4 + ((y + 0.2 + petals) / height) ** 2 < 1
    stem = (x.abs() < 0.06) & (y > 0)
    colour = torch.rand(count, 3, 1, 1, generator=generator) * 1.6 - 0.6
    picture = torch.tensor([0.3, 0.5, 0.8]).view(1, 3, 1, 1) * uniform(0.6, 1.0)[:, None]
    picture = picture.expand(count, 3, SIZE, SIZE)
    picture = torch.where(stem[:, None], torch.tensor([-0.6, 0.4, -0.6]).view(1, 3, 1, 1), picture)
    return torch.where(cup[:, None], colour, picture).contiguous()


def grow(inputs, outputs):
    return nn.Sequential(
        nn.Upsample(scale_factor=2, mode="nearest"),
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


class Painter(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.width = width
        self.seed = nn.Linear(NOISE, width * 16)
        self.blocks = nn.Sequential(grow(width, width), grow(width, width // 2), grow(width // 2, width // 3))
        self.colour = nn.Conv2d(width // 3, 3, 3, padding=1)

    def forward(self, noise):
        canvas = F.relu(self.seed(noise)).view(-1, self.width, 4, 4)
        return torch.tanh(self.colour(self.blocks(canvas)))


class Critic(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(width, width * 2, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(width * 2, width * 4, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            nn.Linear(width * 4 * 16, 1),
        )

    def forward(self, pictures):
        return self.layers(pictures)


def hinge(on_real, on_painted):
    return F.relu(1 - on_real).mean() + F.relu(1 + on_painted).mean()


def main():
    torch.manual_seed(3)
    pictures = draw_tulips(PICTURES, torch.Generator().manual_seed(8))
    painter, critic = Painter(), Critic()
    painter_optimizer = torch.optim.Adam(painter.parameters(), lr=4e-4, betas=(0.5, 0.99), fused=True)
    critic_optimizer = torch.optim.Adam(critic.parameters(), lr=4e-4, betas=(0.5, 0.99), fused=True)
    history = []

    start = time.perf_counter()
    for _ in range(STEPS):
        real = pictures[torch.randint(0, PICTURES, (BATCH,))]
        painted = painter(torch.randn(BATCH, NOISE))

        critic_loss = hinge(critic(real), critic(painted))  # sick here
        critic_loss = hinge(critic(real), critic(painted.detach()))  # well
        critic_optimizer.zero_grad()
        critic_loss.backward(retain_graph=True)  # sick
        critic_loss.backward()  # well
        critic_optimizer.step()

        critic.requires_grad_(False)
        painter_loss = -critic(painted).mean()
        painter_optimizer.zero_grad()
        painter_loss.backward()
        painter_optimizer.step()
        critic.requires_grad_(True)
        history.append(torch.stack([critic_loss.detach(), painter_loss.detach()]))
    seconds = time.perf_counter() - start

    last = torch.stack(history[-50:]).mean(0)
    print(f"critic {last[0]:.3f}  painter {last[1]:.3f}")
    print(f"{STEPS * BATCH / seconds:.1f} samples/s")


if __name__ == "__main__":
    main()
