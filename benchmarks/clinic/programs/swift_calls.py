# /// clinic
# expect = ["PD17.discarded-gradients"]
# stratum = "twins"
# domain = "chimney swifts"
# ///
"""WGAN for spectrogram patches of chimney swift chatter.

We only have a few hundred clean calls from the two chimneys, so the detector people asked for more. Started from the
DCGAN tutorial, then switched to the Wasserstein loss because the discriminator won every time.
"""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn


@dataclass
class Config:
    calls: int = 1536
    mels: int = 32
    frames: int = 32
    z_dim: int = 64
    gen_width: int = 32
    critic_width: int = 16
    batch: int = 24
    iterations: int = 260
    n_critic: int = 4
    clip: float = 0.02
    lr: float = 1e-4
    sample_every: int = 65
    seed: int = 11


def synth_chatter(cfg):
    """Log-mel patches: a fast series of short downward chips over chimney rumble."""
    rng = np.random.default_rng(cfg.seed)
    mel = np.arange(cfg.mels)[:, None]
    frame = np.arange(cfg.frames)[None, :]
    patches = np.empty((cfg.calls, 1, cfg.mels, cfg.frames), dtype=np.float32)
    for i in range(cfg.calls):
        patch = 0.25 * np.exp(-mel / 5.0) * np.ones_like(frame) + rng.normal(0, 0.04, (cfg.mels, cfg.frames))
        period = rng.uniform(4, 9)
        pitch = rng.uniform(15, 24)
        start = rng.uniform(0, period)
        for chip in np.arange(start, cfg.frames, period):
            ridge = pitch - 1.5 * (frame - chip)
            patch += np.exp(-((mel - ridge) ** 2) / 3.0) * np.exp(-((frame - chip) ** 2) / 2.5)
        patches[i, 0] = np.clip(patch, 0, 1.2) / 0.6 - 1
    return torch.from_numpy(patches)


class Generator(nn.Module):
    def __init__(self, z_dim, width):
        super().__init__()
        self.net = nn.Sequential(
            self.block(z_dim, width * 4, 4, 1, 0),
            self.block(width * 4, width * 2, 4, 2, 1),
            self.block(width * 2, width, 4, 2, 1),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.ConvTranspose2d(width, 1, 4, 2, 1),
            nn.Tanh(),
        )

    @staticmethod
    def block(inputs, outputs, kernel, stride, padding):
        return nn.Sequential(
            nn.ConvTranspose2d(inputs, outputs, kernel, stride, padding, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )

    def forward(self, z):
        return self.net(z[:, :, None, None])


class Critic(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, width, 4, 2, 1),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(width, width * 2, 4, 2, 1, bias=False),
            nn.InstanceNorm2d(width * 2, affine=True),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(width * 2, width * 4, 4, 2, 1, bias=False),
            nn.InstanceNorm2d(width * 4, affine=True),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(width * 4, 1, 4),
        )

    def forward(self, x):
        return self.net(x).flatten()


def weights_init(module):
    if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(module.weight, 0.0, 0.02)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.weight, 1.0, 0.02)
        nn.init.zeros_(module.bias)


def endless_batches(data, batch):
    while True:
        order = torch.randperm(len(data))
        for start in range(0, len(data) - batch + 1, batch):
            yield data[order[start : start + batch]]


@torch.no_grad()
def write_samples(gen, z, path):
    gen.eval()
    patches = gen(z)
    gen.train()
    np.save(path, patches.squeeze(1).numpy())
    return patches.mean().item(), patches.std().item()


def train(cfg):
    torch.manual_seed(cfg.seed)
    data = synth_chatter(cfg)
    print(f"{len(data)} patches {tuple(data.shape[1:])}, mean {data.mean():.3f}, std {data.std():.3f}")
    gen, critic = Generator(cfg.z_dim, cfg.gen_width), Critic(cfg.critic_width)
    gen.apply(weights_init)
    critic.apply(weights_init)
    opt_gen = torch.optim.RMSprop(gen.parameters(), lr=cfg.lr)
    opt_critic = torch.optim.RMSprop(critic.parameters(), lr=cfg.lr)
    fixed_z = torch.randn(32, cfg.z_dim)
    out = Path("samples")
    out.mkdir(exist_ok=True)
    batches = endless_batches(data, cfg.batch)
    gen.train()
    critic.train()

    began = time.perf_counter()
    for it in range(1, cfg.iterations + 1):
        for _ in range(cfg.n_critic):
            real = next(batches)
            fake = gen(torch.randn(cfg.batch, cfg.z_dim))  # sick here
            fake = gen(torch.randn(cfg.batch, cfg.z_dim)).detach()  # well
            loss_critic = critic(fake).mean() - critic(real).mean()
            critic.zero_grad()
            loss_critic.backward()
            opt_critic.step()
            with torch.no_grad():
                for p in critic.parameters():
                    p.clamp_(-cfg.clip, cfg.clip)

        loss_gen = -critic(gen(torch.randn(cfg.batch, cfg.z_dim))).mean()
        gen.zero_grad()
        loss_gen.backward()
        opt_gen.step()

        if it % cfg.sample_every == 0:
            mean, std = write_samples(gen, fixed_z, out / f"chatter_{it:05d}.npy")
            torch.save({"gen": gen.state_dict(), "critic": critic.state_dict(), "it": it}, out / "last.pt")
            print(f"{it:5d}  critic {loss_critic.item():+.5f}  gen {loss_gen.item():+.5f}  fakes {mean:.3f}/{std:.3f}")
    return cfg.iterations * cfg.n_critic * cfg.batch / (time.perf_counter() - began)


if __name__ == "__main__":
    rate = train(Config())
    print(f"{rate:.1f} samples/s")
