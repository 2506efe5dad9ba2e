# /// clinic
# expect = ["PD03.same-result", "PD03"]
# allow = ["PD03.samples-made-again"]
# stratum = "twins"
# domain = "audio"
# ///
"""Keyword spotting: short synthetic utterances, log-mel features, a small convolutional classifier."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE = 8000


def hz_to_mel(f):
    return 2595.0 * np.log10(1.0 + f / 700.0)


def mel_to_hz(m):
    return 700.0 * (10.0 ** (m / 2595.0) - 1.0)


def mel_bank(n_fft, n_mels):
    """Triangular filters, (n_mels, n_fft // 2 + 1)."""
    freqs = np.linspace(0, RATE / 2, n_fft // 2 + 1)
    edges = mel_to_hz(np.linspace(hz_to_mel(40.0), hz_to_mel(RATE / 2), n_mels + 2))
    bank = np.zeros((n_mels, len(freqs)), dtype=np.float32)
    for m in range(n_mels):
        lo, mid, hi = edges[m], edges[m + 1], edges[m + 2]
        for k, f in enumerate(freqs):  # here
            if lo < f <= mid:
                bank[m, k] = (f - lo) / (mid - lo)
            elif mid < f < hi:
                bank[m, k] = (hi - f) / (hi - mid)
    return torch.from_numpy(bank)


class Utterances(Dataset):
    def __init__(self, count, classes, n_fft=256, n_mels=32, seed=0):
        gen = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(classes, (count,), generator=gen)
        t = torch.arange(RATE) / RATE
        base = 200.0 + 150.0 * self.labels[:, None]
        self.waves = torch.sin(2 * torch.pi * base * t) + 0.3 * torch.randn(count, RATE, generator=gen)
        self.n_fft, self.n_mels = n_fft, n_mels
        self.window = torch.hann_window(n_fft)
        self.bank = mel_bank(n_fft, n_mels)

    def features(self, wave):
        spec = torch.stft(wave, self.n_fft, self.n_fft // 2, window=self.window, return_complex=True)
        bank = mel_bank(self.n_fft, self.n_mels)  # sick here
        bank = self.bank  # well
        return torch.log(bank @ spec.abs().square() + 1e-5)

    def __len__(self):
        return len(self.waves)

    def __getitem__(self, i):
        return self.features(self.waves[i]), self.labels[i]


class Spotter(nn.Module):
    def __init__(self, classes, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.head = nn.Linear(2 * width, classes)

    def forward(self, x):
        return self.head(self.body(x.unsqueeze(1)))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch", type=int, default=24)
    ap.add_argument("--steps", type=int, default=160)
    ap.add_argument("--width", type=int, default=24)
    args = ap.parse_args()
    torch.manual_seed(0)
    data = Utterances(960, 12)
    loader = DataLoader(data, batch_size=args.batch, shuffle=True, drop_last=True)
    model = Spotter(12, args.width)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step, start = 0, None
    while step < args.steps:
        for feats, labels in loader:
            if step == 5:
                start = time.perf_counter()
            loss = nn.functional.cross_entropy(model(feats), labels)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % 40 == 0:
                print(f"step {step} loss {loss.item():.3f}")
            if step >= args.steps:
                break
    took = time.perf_counter() - start
    print(f"{(args.steps - 5) * args.batch / took:.1f} samples/s")


if __name__ == "__main__":
    main()
