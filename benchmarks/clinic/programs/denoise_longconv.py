# /// clinic
# expect = ["PD10.transform-length"]
# stratum = "twins"
# domain = "audio"
# ///
"""Speech denoiser for half-second clips at 16 kHz, built of long convolutions: every filter is as long as the clip.

The filters are learnt sample by sample under decaying windows, and applied in the frequency domain.
"""

import math
import time

import torch
import torch.nn.functional as F
from scipy.fft import next_fast_len
from torch import nn


RATE = 16_000
SAMPLES = 8_000
CLIPS = 240
BATCH = 4
CHANNELS = 16
LAYERS = 3
EXPANSION = 8
STEPS = 160
LOG_EVERY = 20


def make_clips(count: int, seed: int = 9):
    """Voiced sounds: a few harmonics of a gliding pitch under a slow envelope; and babble-like coloured noise."""
    gen = torch.Generator().manual_seed(seed)
    t = torch.arange(SAMPLES) / RATE
    pitch = 90 + 160 * torch.rand(count, 1, generator=gen) + 40 * torch.rand(count, 1, generator=gen) * t
    phase = 2 * math.pi * torch.cumsum(pitch / RATE, dim=1)
    clean = sum(torch.sin(k * phase) * torch.rand(count, 1, generator=gen) / k for k in range(1, 6))
    envelope = torch.sin(math.pi * t * (2 + 4 * torch.rand(count, 1, generator=gen))).abs()
    clean = clean * envelope
    noise = torch.randn(count, SAMPLES, generator=gen)
    noise = F.avg_pool1d(noise[:, None], 5, stride=1, padding=2)[:, 0]
    return clean / clean.std(), noise / noise.std()


class LongConv(nn.Module):
    """Causal depthwise convolution with a free filter as long as the signal, under a window that decays per channel."""

    def __init__(self, channels: int):
        super().__init__()
        decay = torch.logspace(-3.3, -1.3, channels)
        self.register_buffer("window", torch.exp(-decay[:, None] * torch.arange(SAMPLES)))
        self.weight = nn.Parameter(0.05 * torch.randn(channels, SAMPLES))
        self.skip = nn.Parameter(torch.ones(channels))

    def forward(self, x):
        length = x.shape[-1]
        filters = self.weight * self.window
        n = 2 * length - 1  # sick here
        n = next_fast_len(2 * length - 1, real=True)  # well
        spectrum = torch.fft.rfft(x, n=n) * torch.fft.rfft(filters, n=n)  # here
        y = torch.fft.irfft(spectrum, n=n)[..., :length]  # here
        return y + self.skip[:, None] * x


class Block(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.norm = nn.GroupNorm(1, channels)
        self.conv = LongConv(channels)
        self.widen = nn.Conv1d(channels, EXPANSION * channels, 1)
        self.narrow = nn.Conv1d(EXPANSION * channels, channels, 1)

    def forward(self, x):
        return x + self.narrow(F.gelu(self.widen(self.conv(self.norm(x)))))


class Denoiser(nn.Module):
    def __init__(self, channels: int = CHANNELS, layers: int = LAYERS):
        super().__init__()
        self.encoder = nn.Conv1d(1, channels, 9, padding=4)
        self.blocks = nn.ModuleList(Block(channels) for _ in range(layers))
        self.mask = nn.Conv1d(channels, 1, 1)

    def forward(self, noisy):
        h = self.encoder(noisy[:, None])
        for block in self.blocks:
            h = block(h)
        return self.mask(h)[:, 0]


def negative_snr(estimate, clean):
    error = (estimate - clean).square().sum(dim=1)
    return 10 * torch.log10((error + 1e-6) / (clean.square().sum(dim=1) + 1e-6)).mean()


def mixtures(clean, noise, gen):
    """Endless batches of clean clips and mixtures with noise at -3 to 9 dB."""
    while True:
        speech = torch.randint(0, len(clean), (BATCH,), generator=gen)
        babble = torch.randint(0, len(noise), (BATCH,), generator=gen)
        snr = -3 + 12 * torch.rand(BATCH, 1, generator=gen)
        yield clean[speech], clean[speech] + noise[babble] * 10 ** (-snr / 20)


def main():
    torch.manual_seed(6)
    clean, noise = make_clips(CLIPS)
    batches = mixtures(clean, noise, torch.Generator().manual_seed(8))
    model = Denoiser()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
    start = time.perf_counter()
    running = torch.zeros(())
    for step in range(1, STEPS + 1):
        target, noisy = next(batches)
        loss = negative_snr(model(noisy), target)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        running += loss.detach()
        if step % LOG_EVERY == 0:
            spent = time.perf_counter() - start
            print(f"step {step:4d}  SNR {-running.item() / LOG_EVERY:6.2f} dB  {spent:.1f} s", flush=True)
            running = torch.zeros(())


if __name__ == "__main__":
    main()
