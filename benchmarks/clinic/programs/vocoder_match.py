# /// clinic
# expect = ["PD15"]
# stratum = "twins"
# domain = "audio (vocoder with a feature-matching loss)"
# ///
"""Trains a small upsampling vocoder on synthetic harmonic tones with a feature-matching loss."""

import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = 11
BATCH = 24
MELS = 40
FRAMES = 32
HOP = 64
WIDTH = 64
STEPS = 420
WARMUP = 20
TAPS = ("0", "2", "4", "6")


def clips(batch, generator):
    """Endless stream of (mel-like frames, waveform) pairs."""
    t = torch.arange(FRAMES * HOP) / 16000.0
    basis = torch.randn(MELS, 12, generator=generator)
    while True:
        f0 = 80 + 300 * torch.rand(batch, 1, 1, generator=generator)
        amp = torch.rand(batch, 12, 1, generator=generator) / torch.arange(1, 13).view(1, 12, 1)
        harmonics = torch.arange(1, 13).view(1, 12, 1) * f0
        wave = (amp * torch.sin(2 * math.pi * harmonics * t)).sum(1, keepdim=True) * 0.3
        energy = F.avg_pool1d(wave.abs(), HOP)
        mel = torch.einsum("mk,bko->bmo", basis, amp) + energy + f0 / 200.0
        yield mel, wave


class Vocoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre = nn.Conv1d(MELS, WIDTH, 5, padding=2)
        self.ups = nn.ModuleList()
        width = WIDTH
        for rate in (8, 4, 2):
            self.ups.append(nn.ConvTranspose1d(width, width // 2, rate * 2, rate, rate // 2))
            width //= 2
        self.res = nn.ModuleList(nn.Conv1d(w, w, 5, padding=4, dilation=2) for w in (32, 16, 8))
        self.post = nn.Conv1d(width, 1, 7, padding=3)

    def forward(self, mel):
        x = self.pre(mel)
        for up, res in zip(self.ups, self.res):
            x = F.leaky_relu(up(x), 0.1)
            x = x + F.leaky_relu(res(x), 0.1)
        return torch.tanh(self.post(x))


def listener():
    """A fixed random stack of strided convolutions that stands in for a pretrained audio net."""
    return nn.Sequential(
        nn.Conv1d(1, 16, 15, 2, 7),
        nn.LeakyReLU(0.2),
        nn.Conv1d(16, 32, 15, 4, 7),
        nn.LeakyReLU(0.2),
        nn.Conv1d(32, 64, 15, 4, 7),
        nn.LeakyReLU(0.2),
        nn.Conv1d(64, 64, 5, 1, 2),
    )


def tap(store, name):
    def hook(module, inputs, output):
        store[name] = output.flatten(1)

    return hook


class FeatureLoss(nn.Module):
    def __init__(self, net, layers=TAPS):
        super().__init__()
        self.net = net.eval().requires_grad_(False)
        self.layers = layers
        self.feats = {}  # well
        for name in layers:  # well
            net.get_submodule(name).register_forward_hook(tap(self.feats, name))  # well

    def activations(self, wave):
        feats = self.feats  # well
        feats = {}  # sick
        for name in self.layers:  # sick
            self.net.get_submodule(name).register_forward_hook(tap(feats, name))  # sick here
        self.net(wave)
        return [feats[name] for name in self.layers]

    def forward(self, fake, real):
        with torch.no_grad():
            goal = self.activations(real)
        got = self.activations(fake)
        return sum(F.l1_loss(a, b) for a, b in zip(got, goal))


def main():
    torch.manual_seed(SEED)
    stream = clips(BATCH, torch.Generator().manual_seed(SEED))
    vocoder = Vocoder()
    criterion = FeatureLoss(listener())
    optimizer = torch.optim.AdamW(vocoder.parameters(), lr=3e-4, betas=(0.8, 0.99), fused=True)
    running = 0.0
    for step in range(STEPS + WARMUP):
        if step == WARMUP:
            start = time.perf_counter()
        mel, wave = next(stream)
        fake = vocoder(mel)
        loss = criterion(fake, wave) + 10.0 * F.l1_loss(fake, wave)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running = 0.95 * running + 0.05 * float(loss.detach())
    print(f"{STEPS / (time.perf_counter() - start):.1f} steps/s")


if __name__ == "__main__":
    main()
