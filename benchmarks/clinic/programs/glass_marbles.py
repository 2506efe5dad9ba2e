# /// clinic
# expect = ["PD10.same-result", "PD20.evaluation-too-often"]
# stratum = "twins"
# domain = "glass marbles"
# ///
"""Hinge GAN on photographs of glass marbles, with a latent encoder and a Frechet score on fixed random features.

Usage: python train.py [--epochs 3] [--batch-size 64] [--score-every 32]
"""

import argparse
import copy
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=4096)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--latent", type=int, default=48)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--ema", type=float, default=0.995)
    parser.add_argument("--latent-weight", type=float, default=0.5)
    parser.add_argument("--score-every", type=int, default=32)
    parser.add_argument("--score-samples", type=int, default=768)
    parser.add_argument("--seed", type=int, default=5)
    return parser.parse_args()


def render_marbles(count, size, rng):
    """Round glass with a swirl inside, a highlight, and a plain background."""
    axis = np.linspace(-1, 1, size, dtype=np.float32)
    out = np.empty((count, 3, size, size), np.float32)
    for i in range(count):
        x = axis[None, :] - rng.uniform(-0.25, 0.25)
        y = axis[:, None] - rng.uniform(-0.25, 0.25)
        radius = rng.uniform(0.5, 0.75)
        rr = np.sqrt(x * x + y * y) / radius
        inside = 1 / (1 + np.exp(np.clip(20 * (rr - 1), -30, 30)))
        swirl = np.sin(rng.uniform(2, 6) * rr + rng.integers(1, 4) * np.arctan2(y, x) + rng.uniform(0, 6.28))
        shine = np.exp(-40 * ((x + 0.3 * radius) ** 2 + (y + 0.3 * radius) ** 2))
        glass, thread, ground = rng.uniform(0, 1, (3, 3, 1, 1))
        body = glass + (thread - glass) * (0.5 + 0.5 * swirl) * (1 - 0.5 * rr)
        out[i] = ground * 0.6 * (1 - inside) + body * inside + shine
    out += rng.normal(0, 0.01, out.shape).astype(np.float32)
    return torch.from_numpy(out.clip(0, 1) * 2 - 1)


class Generator(nn.Module):
    def __init__(self, latent, width):
        super().__init__()
        self.fc = nn.Linear(latent, 8 * width * 16)
        self.width = width
        blocks = []
        for inp, out in ((8, 4), (4, 2), (2, 1)):
            blocks += [
                nn.Upsample(scale_factor=2),
                nn.Conv2d(inp * width, out * width, 3, padding=1, bias=False),
                nn.BatchNorm2d(out * width),
                nn.ReLU(inplace=True),
            ]
        self.body = nn.Sequential(*blocks, nn.Conv2d(width, 3, 3, padding=1), nn.Tanh())

    def forward(self, z):
        return self.body(self.fc(z).view(len(z), 8 * self.width, 4, 4))


class Critic(nn.Module):
    """Says real or fake, and guesses the latent code of a fake."""

    def __init__(self, latent, width):
        super().__init__()
        blocks, inp = [], 3
        for out in (width, 2 * width, 4 * width):
            blocks += [spectral_norm(nn.Conv2d(inp, out, 4, 2, 1)), nn.LeakyReLU(0.1, inplace=True)]
            inp = out
        self.body = nn.Sequential(*blocks, nn.Flatten())
        self.score = spectral_norm(nn.Linear(4 * width * 16, 1))
        self.code = nn.Linear(4 * width * 16, latent)

    def forward(self, x):
        h = self.body(x)
        return self.score(h).squeeze(1), self.code(h)


class FeatureNet(nn.Module):
    """Random convolutional features; orthogonal weights, never trained."""

    def __init__(self, seed=1234):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in ((3, 32), (32, 64), (64, 96), (96, 128)))
        gen = torch.Generator().manual_seed(seed)
        for conv in self.convs:
            nn.init.orthogonal_(conv.weight, gain=2**0.5, generator=gen)
            nn.init.zeros_(conv.bias)
        self.eval().requires_grad_(False)

    def forward(self, x):
        for conv in self.convs:
            x = F.avg_pool2d(F.leaky_relu(conv(x), 0.2), 2)
        return x.mean((2, 3))


class FrechetScore:
    def __init__(self, net, images, batch=256):
        self.net, self.images, self.batch = net, images, batch
        self.real = self.statistics(images.split(batch))  # well

    @torch.no_grad()
    def statistics(self, batches):
        feats = torch.cat([self.net(b) for b in batches]).double()
        return feats.mean(0), torch.cov(feats.T)

    @torch.no_grad()
    def __call__(self, generator, z):
        generator.eval()
        mean_f, cov_f = self.statistics(generator(part) for part in z.split(self.batch))
        mean_r, cov_r = self.statistics(self.images.split(self.batch))  # sick here
        mean_r, cov_r = self.real  # well
        vals, vecs = torch.linalg.eigh(cov_r)
        root = vecs @ torch.diag(vals.clamp_min(0).sqrt()) @ vecs.T
        cross = torch.linalg.eigvalsh(root @ cov_f @ root).clamp_min(0).sqrt().sum()
        return ((mean_f - mean_r).square().sum() + cov_f.trace() + cov_r.trace() - 2 * cross).item()


@torch.no_grad()
def follow(ema, model, decay):
    for a, b in zip(ema.parameters(), model.parameters()):
        a.lerp_(b, 1 - decay)
    for a, b in zip(ema.buffers(), model.buffers()):
        a.copy_(b)


def main():
    args = get_args()
    torch.manual_seed(args.seed)
    images = render_marbles(args.images, args.size, np.random.default_rng(args.seed))
    gen, critic = Generator(args.latent, args.width), Critic(args.latent, args.width)
    gen_ema = copy.deepcopy(gen).requires_grad_(False)
    gen_opt = torch.optim.Adam(gen.parameters(), args.lr, betas=(0.0, 0.9))
    critic_opt = torch.optim.Adam(critic.parameters(), 2 * args.lr, betas=(0.0, 0.9))
    frechet = FrechetScore(FeatureNet(), images)
    fixed_z = torch.randn(args.score_samples, args.latent)
    step, best = 0, float("inf")

    start = time.perf_counter()
    for epoch in range(args.epochs):
        for index in torch.randperm(args.images).split(args.batch_size):
            real = images[index]
            flip = torch.rand(len(real), 1, 1, 1) < 0.5
            real = torch.where(flip, real.flip(3), real)

            z = torch.randn(len(real), args.latent)
            with torch.no_grad():
                fake = gen(z)
            score_real, _ = critic(real)
            score_fake, code = critic(fake)
            adv = F.relu(1 - score_real).mean() + F.relu(1 + score_fake).mean()
            critic_loss = adv + args.latent_weight * F.mse_loss(code, z)
            critic_opt.zero_grad(set_to_none=True)
            critic_loss.backward()
            critic_opt.step()

            critic.requires_grad_(False)
            z = torch.randn(len(real), args.latent)
            score, code = critic(gen(z))
            gen_loss = -score.mean() + args.latent_weight * F.mse_loss(code, z)
            gen_opt.zero_grad(set_to_none=True)
            gen_loss.backward()
            gen_opt.step()
            critic.requires_grad_(True)
            follow(gen_ema, gen, args.ema)

            step += 1
            if step % args.score_every == 0:
                score = frechet(gen_ema, fixed_z)
                best = min(best, score)
                print(f"epoch {epoch} step {step} critic {critic_loss.item():.3f} frechet {score:.3f} best {best:.3f}")
    rate = args.epochs * args.images / (time.perf_counter() - start)
    print(f"{rate:.1f} images/s")


if __name__ == "__main__":
    main()
