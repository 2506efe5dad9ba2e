# /// clinic
# expect = ["PD03"]
# stratum = "twins"
# domain = "audio keyword spotting"
# ///
"""Trains a keyword spotter on synthetic half-second clips."""

import math
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE = 16000
CLIP = 8000
N_FFT = 256
HOP = 128
MELS = 20
WORDS = 10
BATCH = 32
STEPS = 380
WARMUP = 20
WORKERS = 1


def mel(hz):
    return 2595.0 * math.log10(1.0 + hz / 700.0)


def hz(m):
    return 700.0 * (10.0 ** (m / 2595.0) - 1.0)


def filter_bank(bands, n_fft, rate):
    top = mel(rate / 2)
    edges = [hz(top * i / (bands + 1)) for i in range(bands + 2)]
    bins = [rate * k / n_fft for k in range(n_fft // 2 + 1)]
    rows = []
    for low, mid, high in zip(edges, edges[1:], edges[2:]):
        rows.append([max(0.0, min((f - low) / (mid - low), (high - f) / (high - mid))) for f in bins])
    return torch.tensor(rows)


class Clips(Dataset):
    def __init__(self, count):
        self.count = count
        self.bank = filter_bank(MELS, N_FFT, RATE)  # well
        self.window = torch.hann_window(N_FFT)

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        gen = torch.Generator().manual_seed(i)
        word = int(torch.randint(0, WORDS, (), generator=gen))
        t = torch.arange(CLIP) / RATE
        wave = torch.sin(2 * math.pi * (200 + 150 * word) * t) + 0.3 * torch.randn(CLIP, generator=gen)
        power = torch.stft(wave, N_FFT, HOP, window=self.window, return_complex=True).abs() ** 2
        bank = filter_bank(MELS, N_FFT, RATE)  # sick here
        return torch.log(bank @ power + 1e-6), word  # sick
        return torch.log(self.bank @ power + 1e-6), word  # well


class Spotter(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(64, 128, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.head = nn.Linear(128, WORDS)

    def forward(self, x):
        return self.head(self.body(x.unsqueeze(1)).mean(dim=(2, 3)))


class Trainer:
    def __init__(self, model, loader):
        self.model, self.loader = model, loader
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def step(self, x, y):
        loss = F.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def fit(self):
        for step, (x, y) in enumerate(self.loader):
            if step == WARMUP:
                self.start = time.perf_counter()
            self.step(x, y)
        return (STEPS - WARMUP) * BATCH / (time.perf_counter() - self.start)


if __name__ == "__main__":
    torch.manual_seed(0)
    loader = DataLoader(Clips(STEPS * BATCH), batch_size=BATCH, shuffle=True, num_workers=WORKERS)
    print(f"{Trainer(Spotter(), loader).fit():.1f} samples/s")
