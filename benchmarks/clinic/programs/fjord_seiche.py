# /// clinic
# expect = ["PD07.float64"]
# stratum = "twins"
# domain = "fjord seiche oscillations"
# ///
"""Denoise tide-gauge records from narrow fjords and recover the seiche modes.

A small 1-d convolutional autoencoder takes a noisy water-level record (one reading a minute) and returns the clean
oscillation. The objective mixes the pointwise error with a distance between short-time spectra at several window
lengths, so that the periods of the basin modes survive the denoising.
"""

import json
import math
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from scipy.signal import get_window
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Config:
    records: int = 3200
    held_out: int = 320
    minutes: int = 2048
    batch: int = 32
    epochs: int = 6
    lr: float = 2e-3
    width: int = 12
    spectral_weight: float = 0.3
    windows: list[int] = field(default_factory=lambda: [128, 256, 512])
    seed: int = 11
    out: str = "seiche_runs"


def merian_period(length_m, depth_m, mode):
    """Period of a closed basin's mode in minutes (Merian's formula)."""
    return 2.0 * length_m / (mode * np.sqrt(9.81 * depth_m)) / 60.0


def make_records(cfg: Config):
    rng = np.random.default_rng(cfg.seed)
    n = cfg.records + cfg.held_out
    t = np.arange(cfg.minutes, dtype=np.float32)[None]
    length = rng.uniform(8e3, 60e3, size=(n, 1))
    depth = rng.uniform(60, 400, size=(n, 1))
    clean = np.zeros((n, cfg.minutes), dtype=np.float32)
    for mode in (1, 2, 3):
        period = merian_period(length, depth, mode).astype(np.float32)
        amplitude = (rng.gamma(2.0, 6.0, size=(n, 1)) / mode).astype(np.float32)
        phase = rng.uniform(0, 2 * math.pi, size=(n, 1)).astype(np.float32)
        start = rng.uniform(0, cfg.minutes / 2, size=(n, 1)).astype(np.float32)
        decay = rng.uniform(400, 1600, size=(n, 1)).astype(np.float32)
        envelope = np.where(t > start, np.exp(-np.maximum(t - start, 0) / decay), 0).astype(np.float32)
        clean += amplitude * envelope * np.sin(2 * math.pi * t / period + phase)
    tide = 20 * np.sin(2 * math.pi * t / 745.0 + rng.uniform(0, 6.28, size=(n, 1))).astype(np.float32)
    chop = rng.standard_normal((n, cfg.minutes), dtype=np.float32) * 5
    noisy = clean + tide + chop
    return torch.from_numpy(noisy / 20).unsqueeze(1), torch.from_numpy(clean / 20).unsqueeze(1)


class Block(nn.Module):
    def __init__(self, channels_in, channels_out, stride):
        super().__init__()
        self.conv = nn.Conv1d(channels_in, channels_out, 9, stride=stride, padding=4)
        self.norm = nn.GroupNorm(4, channels_out)

    def forward(self, x):
        return F.gelu(self.norm(self.conv(x)))


class SeicheDenoiser(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.down = nn.Sequential(Block(1, width, 4), Block(width, 2 * width, 4), Block(2 * width, 4 * width, 2))
        self.middle = Block(4 * width, 4 * width, 1)
        self.up = nn.Sequential(
            nn.ConvTranspose1d(4 * width, 2 * width, 4, stride=2, padding=1),
            nn.GELU(),
            nn.ConvTranspose1d(2 * width, width, 8, stride=4, padding=2),
            nn.GELU(),
            nn.ConvTranspose1d(width, 1, 8, stride=4, padding=2),
        )

    def forward(self, x):
        z = self.down(x)
        return self.up(z + self.middle(z))


class SpectralDistance(nn.Module):
    """Mean absolute distance between log spectra, averaged over window lengths."""

    def __init__(self, lengths):
        super().__init__()
        self.lengths = lengths
        for n in lengths:
            taper = torch.from_numpy(get_window("hann", n))  # sick here
            taper = torch.from_numpy(get_window("hann", n).astype(np.float32))  # well
            self.register_buffer(f"taper_{n}", taper)

    def log_spectrum(self, x, n):
        frames = x.squeeze(1).unfold(-1, n, n // 4) * getattr(self, f"taper_{n}")
        power = torch.view_as_real(torch.fft.rfft(frames, norm="ortho")).square().sum(-1)
        return torch.log(power + 1e-5)

    def forward(self, predicted, target):
        total = 0.0
        for n in self.lengths:
            total = total + F.l1_loss(self.log_spectrum(predicted, n), self.log_spectrum(target, n))
        return total / len(self.lengths)


class Trainer:
    def __init__(self, cfg: Config):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        noisy, clean = make_records(cfg)
        k = cfg.records
        self.train_loader = DataLoader(TensorDataset(noisy[:k], clean[:k]), cfg.batch, shuffle=True, drop_last=True)
        self.valid_loader = DataLoader(TensorDataset(noisy[k:], clean[k:]), cfg.batch)
        self.model = SeicheDenoiser(cfg.width)
        self.spectral = SpectralDistance(cfg.windows)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr, weight_decay=1e-4)
        steps = cfg.epochs * len(self.train_loader)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, max_lr=cfg.lr, total_steps=steps)
        self.out = Path(cfg.out)
        self.out.mkdir(exist_ok=True)
        (self.out / "config.json").write_text(json.dumps(asdict(cfg), indent=1))

    def loss(self, noisy, clean):
        predicted = self.model(noisy)
        return F.smooth_l1_loss(predicted, clean) + self.cfg.spectral_weight * self.spectral(predicted, clean)

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        error, level, loss = 0.0, 0.0, 0.0
        for noisy, clean in self.valid_loader:
            predicted = self.model(noisy)
            error += (predicted - clean).square().sum().item()
            level += clean.square().sum().item()
            loss += self.spectral(predicted, clean).item()
        self.model.train()
        return {"explained": 1 - error / level, "spectral": loss / len(self.valid_loader)}

    def fit(self):
        began = time.perf_counter()
        seen, best = 0, -math.inf
        for epoch in range(self.cfg.epochs):
            running = 0.0
            for noisy, clean in self.train_loader:
                loss = self.loss(noisy, clean)
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.schedule.step()
                running += loss.item()
                seen += len(noisy)
            scores = self.validate()
            if scores["explained"] > best:
                best = scores["explained"]
                torch.save(self.model.state_dict(), self.out / "best.pt")
            told = " ".join(f"{k} {v:.3f}" for k, v in scores.items())
            print(f"epoch {epoch}: loss {running / len(self.train_loader):.4f} {told}")
        return seen / (time.perf_counter() - began)


if __name__ == "__main__":
    rate = Trainer(Config()).fit()
    print(f"{rate:.1f} records/s")
