# /// clinic
# expect = ["PD03.same-result"]
# stratum = "twins"
# allow = ["PD10.element-loop"]
# domain = "machine sounds"
# ///
"""Trains a CNN on log-mel spectrograms that tells which of eight faults a water pump has from one second of sound."""

import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

RATE = 16_000
FAULTS = 8
BATCH = 32
EPOCHS = 5


def hz_to_mel(hz):
    return 2595.0 * math.log10(1.0 + hz / 700.0)


def mel_to_hz(mel):
    return 700.0 * (10.0 ** (mel / 2595.0) - 1.0)


def mel_filters(n_fft, n_mels, rate):
    bins = np.linspace(0, rate / 2, n_fft // 2 + 1)
    edges = mel_to_hz(np.linspace(hz_to_mel(20.0), hz_to_mel(rate / 2), n_mels + 2))
    filters = np.zeros((n_mels, len(bins)))
    for m in range(n_mels):
        low, mid, high = edges[m : m + 3]
        rising = (bins - low) / (mid - low)
        falling = (high - bins) / (high - mid)
        filters[m] = np.maximum(0.0, np.minimum(rising, falling)) * (2.0 / (high - low))
    return torch.from_numpy(filters).float()


class LogMel(nn.Module):
    def __init__(self, n_fft=1024, hop=256, n_mels=64, rate=RATE):
        super().__init__()
        self.n_fft = n_fft
        self.hop = hop
        self.register_buffer("window", torch.hann_window(n_fft))
        self.register_buffer("filters", mel_filters(n_fft, n_mels, rate))

    def forward(self, wave):
        spectrum = torch.stft(wave, self.n_fft, self.hop, window=self.window, return_complex=True)
        mel = self.filters @ spectrum.abs().square()
        return torch.log(mel + 1e-5)


class PumpSounds(Dataset):
    def __init__(self, n_clips, seed, augment):
        self.augment = augment
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, FAULTS, size=n_clips)
        t = np.arange(RATE) / RATE
        self.waves = np.empty((n_clips, RATE), dtype=np.float32)
        for i, fault in enumerate(self.labels):
            base = 90 + rng.normal(0, 4)
            hum = sum(np.sin(2 * np.pi * base * k * t) / k for k in (1, 2, 3))
            whine = np.sin(2 * np.pi * (500 + 420 * fault) * t + 3 * np.sin(2 * np.pi * 6 * t))
            self.waves[i] = 0.4 * hum + 0.15 * whine + 0.3 * rng.standard_normal(RATE)
        self.frontend = LogMel()  # well

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        wave = torch.from_numpy(self.waves[index])
        if self.augment:
            wave = torch.roll(wave, int(torch.randint(0, RATE, (1,))))
            wave = wave * float(torch.empty(1).uniform_(0.6, 1.4))
        to_logmel = LogMel()  # sick here
        features = to_logmel(wave)  # sick
        features = self.frontend(wave)  # well
        features = (features - features.mean()) / (features.std() + 1e-5)
        return features.unsqueeze(0), int(self.labels[index])


class FaultNet(nn.Module):
    def __init__(self):
        super().__init__()
        layers, c_in = [], 1
        for c_out in (16, 32, 64):
            layers += [
                nn.Conv2d(c_in, c_out, 3, padding=1, bias=False),
                nn.BatchNorm2d(c_out),
                nn.ReLU(inplace=True),
                nn.MaxPool2d(2),
            ]
            c_in = c_out
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(c_in, FAULTS)

    def forward(self, x):
        return self.head(self.body(x).mean(dim=(2, 3)))


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    right = sum((model(x).argmax(dim=1) == y).sum().item() for x, y in loader)
    model.train()
    return right / len(loader.dataset)


def main():
    torch.manual_seed(0)
    train_loader = DataLoader(PumpSounds(1920, seed=1, augment=True), BATCH, shuffle=True, drop_last=True)
    test_loader = DataLoader(PumpSounds(256, seed=2, augment=False), 64)

    model = FaultNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    total = EPOCHS * len(train_loader)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=total)

    step, start = 0, None
    for epoch in range(EPOCHS):
        for features, labels in train_loader:  # here
            loss = F.cross_entropy(model(features), labels, label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            step += 1
            if step == 5:
                start = time.perf_counter()
        print(f"epoch {epoch} loss {loss.item():.4f} test accuracy {accuracy(model, test_loader):.3f}")

    rate = (step - 5) / (time.perf_counter() - start)
    print(f"{rate:.2f} steps/s")


if __name__ == "__main__":
    main()
