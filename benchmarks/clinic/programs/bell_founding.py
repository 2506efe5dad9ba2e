# /// clinic
# expect = ["PD07.float64"]
# stratum = "twins"
# domain = "bell founding, partials from a strike"
# ///
"""Bell founding: read off the partials of a freshly cast bell from the sound of one strike.

For each of the partials that a tuner cares about (hum, prime, tierce, quint,
nominal, ...) the network tells how many cents it is off, how loud it is and how
quickly it dies away.  It listens through a bank of constant-Q band filters; the
recordings are shifted, scaled and dirtied anew in every batch.
"""

import argparse
import math
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from scipy import signal
from torch import nn

RATIOS = np.array([0.5, 1.0, 1.2, 1.5, 2.0, 2.5, 2.667, 3.0, 4.0, 5.33])


@dataclass
class Foundry:
    sample_rate: int = 8000
    samples: int = 4864
    strike_note: float = 330.0
    max_cents: float = 50.0
    bells: int = 3072


class Casting:
    """Synthetic strikes of bells of one profile; everything is kept in memory."""

    def __init__(self, cfg: Foundry, seed: int):
        rng = np.random.default_rng(seed)
        spare = cfg.samples // 8
        self.samples = cfg.samples
        t = (np.arange(cfg.samples + spare) - spare) / cfg.sample_rate
        p = len(RATIOS)
        off = rng.uniform(-1, 1, (cfg.bells, p))
        level = rng.uniform(0.2, 1.0, (cfg.bells, p))
        decay = rng.uniform(1.0, 9.0, (cfg.bells, p))
        waves = np.empty((cfg.bells, len(t)), dtype=np.float32)
        for i in range(cfg.bells):
            hz = cfg.strike_note * RATIOS * 2 ** (off[i] * cfg.max_cents / 1200)
            ring = np.exp(-np.outer(decay[i], t.clip(0))) * np.sin(2 * math.pi * np.outer(hz, t)) * (t >= 0)
            waves[i] = level[i] @ ring
        self.waves = torch.from_numpy(waves)
        targets = np.stack([off, (level - 0.6) / 0.23, (decay - 5) / 2.3], axis=1)
        self.targets = torch.from_numpy(targets.astype(np.float32))

    def batches(self, size, generator):
        order = torch.randperm(len(self.waves), generator=generator)
        for rows in order.split(size):
            shift = int(torch.randint(0, self.waves.shape[1] - self.samples, (1,), generator=generator))
            wave = self.waves[rows, shift : shift + self.samples]
            noise = torch.randn(wave.shape, generator=generator)
            yield wave + 0.03 * noise, self.targets[rows]


class BandFilters(nn.Module):
    """Log energy of `bands` complex constant-Q filters, every `hop` samples."""

    def __init__(self, cfg: Foundry, bands=192, taps=768, hop=32):
        super().__init__()
        self.taps, self.hop, self.bands = taps, hop, bands
        centres = np.geomspace(0.45, 5.8, bands) * cfg.strike_note
        t = (np.arange(taps) - taps / 2) / cfg.sample_rate
        kernels = np.empty((taps, 2 * bands))
        for k, hz in enumerate(centres):
            width = int(min(taps, 34 * cfg.sample_rate / hz)) // 2 * 2
            window = np.zeros(taps)
            window[(taps - width) // 2 : (taps + width) // 2] = signal.windows.hann(width, sym=False)
            window /= window.sum()
            kernels[:, k] = window * np.cos(2 * math.pi * hz * t)
            kernels[:, bands + k] = window * np.sin(2 * math.pi * hz * t)
        self.register_buffer("kernels", torch.from_numpy(kernels))  # sick here
        self.register_buffer("kernels", torch.from_numpy(kernels.astype(np.float32)))  # well

    @torch.no_grad()
    def forward(self, wave):
        frames = wave.to(self.kernels.dtype).unfold(-1, self.taps, self.hop)  # here
        parts = frames @ self.kernels
        energy = parts[..., : self.bands].square() + parts[..., self.bands :].square()
        return torch.log(energy + 1e-6).transpose(1, 2).float()


class Ear(nn.Module):
    def __init__(self, cfg: Foundry, width: int = 64):
        super().__init__()
        self.filters = BandFilters(cfg)
        self.norm = nn.BatchNorm1d(self.filters.bands)
        self.body = nn.Sequential(
            nn.Conv1d(self.filters.bands, 2 * width, 4, stride=4),
            nn.GELU(),
            nn.Conv1d(2 * width, width, 4, stride=4),
            nn.GELU(),
            nn.Flatten(),
        )
        self.out = nn.Sequential(nn.Linear(8 * width, 256), nn.GELU(), nn.Linear(256, 3 * len(RATIOS)))

    def forward(self, wave):
        picture = self.norm(self.filters(wave))
        return self.out(self.body(picture)).view(len(wave), 3, -1)


class Tuner:
    def __init__(self, args):
        self.args = args
        cfg = Foundry()
        self.data = Casting(cfg, args.seed)
        self.ear = Ear(cfg)
        self.opt = torch.optim.AdamW(self.ear.parameters(), lr=args.lr, fused=True)
        self.generator = torch.Generator().manual_seed(args.seed)

    def step(self, wave, target):
        loss = F.smooth_l1_loss(self.ear(wave), target)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.ear.parameters(), 5.0)
        self.opt.step()
        return loss.detach()

    def fit(self):
        for epoch in range(self.args.epochs):
            losses = [self.step(*b) for b in self.data.batches(self.args.batch, self.generator)]
            print(f"epoch {epoch:2d}  loss {torch.stack(losses).mean():.4f}", flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=12)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--seed", type=int, default=4)
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    tuner = Tuner(args)
    start = time.perf_counter()
    tuner.fit()
    print(f"training took {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
