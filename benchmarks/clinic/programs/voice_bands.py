# /// clinic
# expect = ["PD10.transform-length"]
# stratum = "twins"
# domain = "speech synthesis"
# sizes = {CHANNELS = [28, 36], CROP = [20400, 21600]}
# ///
"""Trains a light source-filter vocoder (pitch and band energies in, waveform out) on a multi-resolution spectral loss."""

import time
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

RATE = 24000
HOP = 120
CHANNELS = 32
CROP = 21000
BATCH = 6
STEPS = 150
WARMUP = 8


@dataclass
class Resolution:
    """One analysis of the loss, given in milliseconds as in the paper's table."""

    window_ms: float
    overlap: int = 4
    floor: float = 1e-5
    taper: torch.Tensor = field(init=False)

    def __post_init__(self):
        self.taper = torch.hann_window(self.size, periodic=False)

    @property
    def size(self):
        samples = round(self.window_ms * RATE / 1000)
        # the taper is symmetric about its middle sample, so that frames line up with the pitch marks
        return samples | 1  # sick here
        return samples  # well

    @property
    def hop(self):
        return self.size // self.overlap

    def magnitude(self, wave):
        spec = torch.stft(wave, self.size, self.hop, window=self.taper, return_complex=True)
        return torch.view_as_real(spec).square().sum(-1).clamp_min(self.floor).sqrt()


class SpectralLoss(nn.Module):
    def __init__(self, windows_ms):
        super().__init__()
        self.scales = [Resolution(ms) for ms in windows_ms]

    def forward(self, guess, target):
        total = 0.0
        for scale in self.scales:
            with torch.no_grad():
                want = scale.magnitude(target)
            have = scale.magnitude(guess)
            convergence = (have - want).norm() / want.norm()
            total = total + convergence + F.l1_loss(have, want)
        return total / len(self.scales)


class Vocoder(nn.Module):
    """Filters a sine excitation and noise by gains per frame, then mends the result with a short stack of convolutions."""

    def __init__(self, bands, width):
        super().__init__()
        self.frames = nn.Sequential(
            nn.Conv1d(bands + 1, width, 5, padding=2),
            nn.GELU(),
            nn.Conv1d(width, width, 5, padding=2),
            nn.GELU(),
            nn.Conv1d(width, 12, 1),
        )
        self.mend = nn.Sequential(nn.Conv1d(12, 6, 9, padding=4), nn.Tanh(), nn.Conv1d(6, 1, 9, padding=4))
        self.harmonics = 6

    def forward(self, pitch, energy):
        gains = self.frames(torch.cat([energy, pitch.log1p().unsqueeze(1) / 6], 1))
        gains = F.interpolate(gains, scale_factor=HOP, mode="linear")
        phase = torch.cumsum(pitch.repeat_interleave(HOP, 1) / RATE, 1) % 1.0
        order = torch.arange(1, self.harmonics + 1).view(1, -1, 1)
        tones = torch.sin(2 * torch.pi * order * phase.unsqueeze(1))
        hiss = torch.rand_like(tones) - 0.5
        return self.mend(gains * torch.cat([tones, hiss], 1)).squeeze(1)


class Corpus:
    """Sung vowels: gliding pitch, three formants, some breath."""

    def __init__(self, count, seconds, bands, seed):
        rng = np.random.default_rng(seed)
        frames = seconds * RATE // HOP
        self.waves, self.pitches, self.energies = [], [], []
        for _ in range(count):
            pitch = 140 + 60 * np.cumsum(rng.normal(0, 0.02, frames)) + rng.uniform(-30, 60)
            pitch = np.clip(pitch, 70, 400).astype(np.float32)
            phase = np.cumsum(np.repeat(pitch, HOP) / RATE)
            wave = sum(rng.uniform(0.1, 1) / k * np.sin(2 * np.pi * k * phase) for k in range(1, 9))
            wave = wave * (0.6 + 0.4 * np.sin(np.linspace(0, rng.uniform(6, 20), wave.size)))
            wave = (0.1 * wave + 0.004 * rng.normal(size=wave.size)).astype(np.float32)
            power = np.abs(np.fft.rfft(wave.reshape(frames, HOP), axis=1)[:, :bands]).T
            self.waves.append(torch.from_numpy(wave))
            self.pitches.append(torch.from_numpy(pitch))
            self.energies.append(torch.from_numpy(np.log1p(power).astype(np.float32)))
        self.rng = rng
        self.frames = frames

    def batch(self, size, crop):
        length = crop // HOP
        rows = []
        for _ in range(size):
            song = self.rng.integers(len(self.waves))
            at = self.rng.integers(self.frames - length)
            rows.append(
                (
                    self.pitches[song][at : at + length],
                    self.energies[song][:, at : at + length],
                    self.waves[song][at * HOP : (at + length) * HOP],
                )
            )
        return [torch.stack(part) for part in zip(*rows)]


def main():
    torch.manual_seed(7)
    corpus = Corpus(count=24, seconds=4, bands=20, seed=7)
    model = Vocoder(20, CHANNELS)
    loss_of = SpectralLoss(windows_ms=(10, 25, 50, 75, 100))
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    started, running = time.perf_counter(), 0.0
    for step in range(STEPS):
        if step == WARMUP:
            started = time.perf_counter()
        pitch, energy, wave = corpus.batch(BATCH, CROP)
        loss = loss_of(model(pitch, energy), wave)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
        running += loss.item()
        if step % 50 == 49:
            print(f"step {step + 1}  loss {running / 50:.4f}")
            running = 0.0
    print(f"{(STEPS - WARMUP) / (time.perf_counter() - started):.2f} steps/s")


if __name__ == "__main__":
    main()
