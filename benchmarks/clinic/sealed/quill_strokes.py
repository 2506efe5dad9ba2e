# /// clinic
# expect = ["PD08", "PD17"]
# endless = true
# stratum = "twins"
# domain = "handwriting synthesis"
# ///
"""Wasserstein GAN that draws single handwritten words as grey patches, conditioned on the writer."""

import time
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn

cfg = SimpleNamespace(
    writers=16, latent=48, high=32, wide=64, batch=16, critic_steps=3, clip=0.01, lr=1e-4, rounds=40000, report=5
)


class InkBook:
    """Words as smooth random pen strokes; slant and pressure belong to the writer."""

    def __init__(self, words=320, seed=14):
        g = torch.Generator().manual_seed(seed)
        self.writer = torch.randint(0, cfg.writers, (words,), generator=g)
        slant = torch.randn(cfg.writers, generator=g) * 0.4
        press = 6 + 10 * torch.rand(cfg.writers, generator=g)
        t = torch.linspace(0, 1, 60)
        rows, cols = torch.meshgrid(torch.arange(cfg.high), torch.arange(cfg.wide), indexing="ij")
        self.ink = torch.empty(words, 1, cfg.high, cfg.wide)
        for n in range(words):
            f = torch.randint(3, 7, (3,), generator=g)
            phase = torch.rand(3, generator=g) * 6.28
            y = sum(torch.sin(6.28 * f[k] * t + phase[k]) for k in range(3)) / 3
            x = 6 + (cfg.wide - 12) * t + slant[self.writer[n]] * 8 * y
            y = cfg.high * (0.5 + 0.3 * y)
            gap = (rows.unsqueeze(-1) - y) ** 2 + (cols.unsqueeze(-1) - x) ** 2
            self.ink[n, 0] = torch.exp(-gap.min(-1).values * press[self.writer[n]] / 20) * 2 - 1
        self.generator = g

    def draw(self):
        rows = torch.randint(0, len(self.ink), (cfg.batch,), generator=self.generator)
        return self.ink[rows], self.writer[rows]


class Modulated(nn.Module):
    """Convolution whose channels are scaled by the writer's style."""

    def __init__(self, cin, cout, style):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, padding=1)
        self.scale = nn.Linear(style, cin)

    def forward(self, x, style):
        x = x * (1 + self.scale(style))[:, :, None, None]
        return F.leaky_relu(self.conv(x), 0.2)


class Pen(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.writers = nn.Embedding(cfg.writers, cfg.latent)
        self.seed = nn.Linear(cfg.latent, width * (cfg.high // 8) * (cfg.wide // 8))
        plan = [(width, width), (width, width), (width, width // 2), (width // 2, width // 2)]
        self.stages = nn.ModuleList(Modulated(a, b, cfg.latent) for a, b in plan)
        self.ink = nn.Conv2d(width // 2, 1, 1)

    def forward(self, z, writer):
        style = self.writers(writer) + z
        x = self.seed(z).view(len(z), -1, cfg.high // 8, cfg.wide // 8)
        for k, stage in enumerate(self.stages):
            if k:
                x = F.interpolate(x, scale_factor=2, mode="nearest")
            x = stage(x, style)
        return self.ink(x).tanh()


class Critic(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, width, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(2 * width, 4 * width, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
        )
        size = 4 * width * (cfg.high // 8) * (cfg.wide // 8)
        self.real = nn.Linear(size, 1)
        self.match = nn.Embedding(cfg.writers, size)

    def forward(self, ink, writer):
        z = self.net(ink)
        return self.real(z).squeeze(1) + (z * self.match(writer)).mean(1)


class Studio:
    """Hands out ways to write: the apprentice learns from what it writes, the exhibits are only looked at."""

    def __init__(self, pen):
        self.pen = pen

    def write(self, writer):
        return self.pen(torch.randn(len(writer), cfg.latent), writer)

    def apprentice(self):
        return self.write

    @torch.no_grad()  # sick here
    def exhibits(self):
        return lambda writer: self.write(writer)  # sick here
        return torch.no_grad()(self.write)  # well


def critic_round(critic, optimizer, book, source):
    for _ in range(cfg.critic_steps):
        ink, writer = book.draw()
        gap = critic(source(writer), writer).mean() - critic(ink, writer).mean()  # here
        optimizer.zero_grad()
        gap.backward()
        optimizer.step()
        with torch.no_grad():
            for p in critic.parameters():
                p.clamp_(-cfg.clip, cfg.clip)
    return -gap.detach()


def pen_round(critic, optimizer, source):
    writer = torch.randint(0, cfg.writers, (cfg.batch,))
    loss = -critic(source(writer), writer).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def main():
    torch.manual_seed(14)
    book, pen, critic = InkBook(), Pen(), Critic()
    studio = Studio(pen)
    exhibits, apprentice = studio.exhibits(), studio.apprentice()
    pen_optimizer = torch.optim.RMSprop(pen.parameters(), lr=cfg.lr)
    critic_optimizer = torch.optim.RMSprop(critic.parameters(), lr=cfg.lr)
    since = time.perf_counter()
    for n in range(1, cfg.rounds + 1):
        distance = critic_round(critic, critic_optimizer, book, exhibits)
        pen_round(critic, pen_optimizer, apprentice)
        if n % cfg.report == 0:
            now = time.perf_counter()
            print(f"round {n}: distance {distance.item():.5f}  {cfg.report / (now - since):.2f} steps/s", flush=True)
            since = now


if __name__ == "__main__":
    main()
