# /// clinic
# expect = ["PD07.float64"]
# stratum = "twins"
# domain = "medical signals, twelve-lead ECG"
# ///
"""Trains a rhythm classifier on twelve-lead ECG with a learnable wavelet front end."""

import time

import numpy as np
import torch
import torch.nn.functional as F
from scipy import signal
from torch import nn

RATE = 250
SECONDS = 4
LEADS = 12
CLASSES = 5
RECORDS = 640
BATCH = 16
STEPS = 300

rng = np.random.default_rng(11)
torch.manual_seed(11)


def synthetic_ecg(label):
    t = np.arange(RATE * SECONDS) / RATE
    period = rng.uniform(0.55, 1.1) * (0.7 if label == 1 else 1.0)
    jitter = 0.15 if label == 2 else 0.02
    beats = np.cumsum(np.maximum(0.3, period + rng.normal(0, jitter, 16)))
    width = 0.035 if label == 3 else 0.015
    wave = np.zeros_like(t)
    for beat in beats:
        wave += np.exp(-(((t - beat) / width) ** 2))
        wave += 0.25 * np.exp(-(((t - beat - 0.25) / 0.05) ** 2))
        if label != 2:
            wave += 0.15 * np.exp(-(((t - beat + 0.16) / 0.03) ** 2))
    if label == 4:
        wave += 0.2 * np.sin(2 * np.pi * 5 * t)
    leads = rng.normal(0.6, 0.4, (LEADS, 1)) * wave + rng.normal(0, 0.1, (LEADS, t.size))
    leads += 0.3 * np.sin(2 * np.pi * rng.uniform(0.1, 0.4) * t)
    return leads


def band_pass(ecg):
    sos = signal.butter(3, [0.5, 45], btype="bandpass", fs=RATE, output="sos")
    filtered = signal.sosfiltfilt(sos, ecg, axis=-1)
    return (filtered - filtered.mean(-1, keepdims=True)) / filtered.std(-1, keepdims=True)


def morlet_bank(scales, length):
    t = np.arange(length) - length // 2
    bank = []
    for f in np.geomspace(2, 40, scales):
        sigma = min(RATE / f, length / 4)
        kernel = np.exp(-0.5 * (t / sigma) ** 2) * np.cos(2 * np.pi * f * t / RATE)
        bank.append(kernel / np.linalg.norm(kernel))
    return np.stack(bank)


class WaveletFrontEnd(nn.Module):
    """Learnable filters that start as Morlet wavelets, shared by all leads."""

    def __init__(self, scales=16, length=63, stride=4):
        super().__init__()
        bank = torch.from_numpy(morlet_bank(scales, length)).unsqueeze(1)  # sick here
        bank = torch.from_numpy(morlet_bank(scales, length)).unsqueeze(1).float()  # well
        self.bank = nn.Parameter(bank)
        self.stride = stride

    def forward(self, x):
        batch, leads, samples = x.shape
        x = x.reshape(batch * leads, 1, samples).to(self.bank.dtype)
        bands = F.conv1d(x, self.bank, stride=self.stride, padding=self.bank.shape[-1] // 2)
        energy = torch.log1p(bands.square())
        return energy.reshape(batch, leads * bands.shape[1], bands.shape[2]).float()


class Residual(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.conv1 = nn.Conv1d(channels, channels, 5, padding=2 * dilation, dilation=dilation, bias=False)
        self.norm1 = nn.BatchNorm1d(channels)
        self.conv2 = nn.Conv1d(channels, channels, 1, bias=False)
        self.norm2 = nn.BatchNorm1d(channels)

    def forward(self, x):
        h = F.relu(self.norm1(self.conv1(x)))
        return F.relu(x + self.norm2(self.conv2(h)))


class RhythmNet(nn.Module):
    def __init__(self, scales=16, channels=56):
        super().__init__()
        self.front = WaveletFrontEnd(scales)
        self.mix = nn.Sequential(
            nn.Conv1d(LEADS * scales, channels, 1, bias=False), nn.BatchNorm1d(channels), nn.ReLU()
        )
        self.body = nn.Sequential(*[Residual(channels, d) for d in (1, 2, 4)])
        self.head = nn.Linear(channels, CLASSES)

    def forward(self, x):
        return self.head(self.body(self.mix(self.front(x))).mean(dim=-1))


labels = torch.from_numpy(rng.integers(0, CLASSES, RECORDS))
records = np.stack([band_pass(synthetic_ecg(int(label))) for label in labels])
records = torch.from_numpy(records.astype(np.float32))

model = RhythmNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)

step = 0
while step < STEPS:
    for index in torch.randperm(RECORDS).split(BATCH):
        if step == 5:
            start = time.perf_counter()
        gain = 1 + 0.1 * torch.randn(len(index), LEADS, 1)
        ecg = records[index] * gain
        loss = F.cross_entropy(model(ecg), labels[index], label_smoothing=0.05)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")
        step += 1
        if step == STEPS:
            break

print(f"{(STEPS - 5) / (time.perf_counter() - start):.2f} steps/s")
