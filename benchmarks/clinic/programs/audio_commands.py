# /// clinic
# expect = ["PD03"]
# stratum = "twins"
# domain = "audio keyword spotting (Lightning)"
# ///
"""Train a small convolutional keyword spotter on log-mel features with Lightning."""

import logging
import time
import warnings

import lightning as L
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

CLIPS = 2048
RATE = 16000
N_FFT = 2048
HOP = 256
MELS = 80
WORDS = 12
BATCH = 32
STEPS = 370
WARMUP = 20

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")


def hz_to_mel(hz):
    return 2595.0 * np.log10(1.0 + np.asarray(hz) / 700.0)


def mel_to_hz(mel):
    return 700.0 * (10.0 ** (np.asarray(mel) / 2595.0) - 1.0)


def mel_basis(sr, n_fft, n_mels, fmin=0.0, fmax=None):
    fmax = fmax or sr / 2
    freqs = np.fft.rfftfreq(n_fft, 1.0 / sr)
    points = mel_to_hz(np.linspace(hz_to_mel(fmin), hz_to_mel(fmax), n_mels + 2))
    fdiff = np.diff(points)
    ramps = np.subtract.outer(points, freqs)
    weights = np.zeros((n_mels, len(freqs)), dtype=np.float32)
    for i in range(n_mels):
        lower = -ramps[i] / fdiff[i]
        upper = ramps[i + 2] / fdiff[i + 1]
        weights[i] = np.maximum(0, np.minimum(lower, upper))
    weights *= (2.0 / (points[2:] - points[:-2]))[:, None]
    return torch.from_numpy(weights)


class LogMel:
    def __init__(self, sr=RATE, n_fft=N_FFT, hop=HOP, n_mels=MELS):
        self.sr, self.n_fft, self.hop, self.n_mels = sr, n_fft, hop, n_mels
        self.window = torch.hann_window(n_fft)
        self.basis = mel_basis(sr, n_fft, n_mels)  # well

    def __call__(self, wave):
        spec = torch.stft(wave, self.n_fft, self.hop, window=self.window, return_complex=True)
        power = spec.real.square() + spec.imag.square()
        mel = mel_basis(self.sr, self.n_fft, self.n_mels) @ power  # sick here
        mel = self.basis @ power  # well
        return torch.log(mel.clamp_min(1e-5))


class SpokenWords(Dataset):
    def __init__(self, n, transform, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(WORDS, (n,), generator=g)
        t = torch.arange(RATE) / RATE
        pitch = 120.0 + 60.0 * self.labels[:, None]
        self.waves = torch.sin(2 * torch.pi * pitch * t) + 0.5 * torch.randn(n, RATE, generator=g)
        self.transform = transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        wave = torch.roll(self.waves[i], int(torch.randint(1600, ())))
        return self.transform(wave), self.labels[i]


class Spotter(L.LightningModule):
    def __init__(self, width=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(MELS, width, 3, padding=1),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, width, 3, padding=1),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, width, 3, padding=1),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
            nn.Linear(width, WORDS),
        )

    def training_step(self, batch, batch_idx):
        x, y = batch
        return F.cross_entropy(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Rate(L.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.global_step == WARMUP:
            self.start = time.perf_counter()
        self.end = time.perf_counter()

    @property
    def value(self):
        return (STEPS - WARMUP) * BATCH / (self.end - self.start)


def main():
    L.seed_everything(7, verbose=False)
    words = SpokenWords(CLIPS, LogMel())
    loader = DataLoader(words, batch_size=BATCH, shuffle=True, drop_last=True)
    rate = Rate()
    trainer = L.Trainer(
        max_steps=STEPS,
        accelerator="cpu",
        devices=1,
        logger=False,
        callbacks=[rate],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Spotter(), loader)
    print(f"{rate.value:.1f} samples/s")


if __name__ == "__main__":
    main()
