# /// clinic
# expect = ["PD03"]
# stratum = "twins"
# domain = "audio classification"
# ///
"""Train a small CNN that tells bird calls apart."""

import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE = 16000
N_FFT = 1024
HOP = 320
N_MELS = 64
CLIPS = 480
CLASSES = 12
BATCH = 16
EPOCHS = 17


def hz_to_mel(hz):
    return 2595.0 * np.log10(1.0 + hz / 700.0)


def mel_to_hz(mel):
    return 700.0 * (10.0 ** (mel / 2595.0) - 1.0)


def mel_bank(rate, n_fft, n_mels, lo=50.0):
    freqs = np.linspace(0, rate / 2, n_fft // 2 + 1)
    edges = mel_to_hz(np.linspace(hz_to_mel(lo), hz_to_mel(rate / 2), n_mels + 2))
    bank = np.zeros((n_mels, len(freqs)), dtype=np.float32)
    for m in range(n_mels):
        left, mid, right = edges[m : m + 3]
        up = (freqs - left) / (mid - left)
        down = (right - freqs) / (right - mid)
        bank[m] = np.maximum(0, np.minimum(up, down)) * 2.0 / (right - left)
    return torch.from_numpy(bank)


class LogMel:
    def __init__(self, rate=RATE, n_fft=N_FFT, hop=HOP, n_mels=N_MELS):
        self.rate, self.n_fft, self.hop, self.n_mels = rate, n_fft, hop, n_mels
        self.window = torch.hann_window(n_fft)
        self._bank = mel_bank(rate, n_fft, n_mels)  # well

    @property
    def bank(self):
        return mel_bank(self.rate, self.n_fft, self.n_mels)  # sick here
        return self._bank  # well

    def __call__(self, wave):
        spec = torch.stft(wave, self.n_fft, self.hop, window=self.window, return_complex=True)
        power = spec.real.square() + spec.imag.square()
        return torch.log1p(100.0 * (self.bank @ power))


class Calls(Dataset):
    def __init__(self, transform, seed=3):
        rng = np.random.default_rng(seed)
        t = np.arange(RATE) / RATE
        self.labels = rng.integers(0, CLASSES, CLIPS)
        self.waves = np.empty((CLIPS, RATE), dtype=np.float32)
        for i, k in enumerate(self.labels):
            base = 600 + 450 * k + rng.normal(0, 40)
            sweep = 200 * np.sin(2 * np.pi * (3 + k % 4) * t)
            self.waves[i] = np.sin(2 * np.pi * (base * t + sweep * t / 10)) + rng.normal(0, 0.3, RATE)
        self.transform = transform

    def __len__(self):
        return CLIPS

    def __getitem__(self, i):
        wave = torch.from_numpy(self.waves[i])
        wave = wave.roll(int(torch.randint(0, RATE, ())))
        return self.transform(wave)[None], int(self.labels[i])


def conv(cin, cout, stride):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU())


def main():
    torch.manual_seed(0)
    loader = DataLoader(Calls(LogMel()), batch_size=BATCH, shuffle=True, drop_last=True)
    model = nn.Sequential(
        conv(1, 16, 2),
        conv(16, 32, 1),
        conv(32, 64, 2),
        conv(64, 64, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, CLASSES),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    step, start = 0, 0.0
    for _epoch in range(EPOCHS):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == 20:
                start = time.perf_counter()
    print(f"{(step - 20) / (time.perf_counter() - start):.1f} steps/s")


if __name__ == "__main__":
    main()
