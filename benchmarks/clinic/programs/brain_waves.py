# /// clinic
# expect = ["PD07"]
# stratum = "twins"
# domain = "biosignals (EEG)"
# ///
"""Trains a sleep-stage classifier on spectral features of synthetic EEG."""

import time

import numpy as np
import torch
import torch.nn.functional as F

CHANNELS = 6
SAMPLES = 3000
FRAME, HOP = 256, 64
BANDS = 48
HIDDEN = 64
STAGES = 5
BATCH = 32
STEPS = 520
WARMUP = 20


def make_front_end():
    window = np.hanning(FRAME)

    def front_end(signal, bands):
        frames = signal.unfold(-1, FRAME, HOP)
        frames = frames * torch.from_numpy(window)  # sick here
        frames = frames * torch.from_numpy(window).float()  # well
        spectrum = torch.fft.rfft(frames)
        power = spectrum.real**2 + spectrum.imag**2
        mixed = power @ torch.softmax(bands, dim=0).to(power.dtype)
        return torch.log1p(mixed).float()

    return front_end


def make_params(gen):
    def weight(*shape):
        return (torch.randn(*shape, generator=gen) / shape[0] ** 0.5).requires_grad_()

    return {
        "bands": weight(FRAME // 2 + 1, BANDS),
        "w1": weight(CHANNELS * BANDS, HIDDEN),
        "b1": torch.zeros(HIDDEN, requires_grad=True),
        "w2": weight(HIDDEN, STAGES),
        "b2": torch.zeros(STAGES, requires_grad=True),
    }


def make_model(front_end):
    def model(params, signal):
        features = front_end(signal, params["bands"])
        frames = features.transpose(1, 2).flatten(2)
        hidden = torch.tanh(frames @ params["w1"] + params["b1"])
        return hidden.mean(dim=1) @ params["w2"] + params["b2"]

    return model


def make_recordings(gen):
    t = torch.arange(SAMPLES) / 100.0

    def sample():
        stage = torch.randint(0, STAGES, (BATCH,), generator=gen)
        phase = torch.rand(BATCH, CHANNELS, 1, generator=gen) * 6.28
        wave = torch.sin(6.28 * (2.0 + 3.0 * stage)[:, None, None] * t + phase)
        return wave + torch.randn(BATCH, CHANNELS, SAMPLES, generator=gen), stage

    return sample


def make_step(model, params, optimizer):
    def step(signal, stage):
        loss = F.cross_entropy(model(params, signal), stage)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def main():
    gen = torch.Generator().manual_seed(21)
    params = make_params(gen)
    optimizer = torch.optim.Adam(params.values(), lr=2e-3, fused=True)
    step = make_step(make_model(make_front_end()), params, optimizer)
    sample = make_recordings(gen)
    total = torch.zeros(())
    for i in range(STEPS):
        if i == WARMUP:
            start = time.perf_counter()
        total += step(*sample())
    rate = (STEPS - WARMUP) / (time.perf_counter() - start)
    print(f"{rate:.1f} steps/s")


if __name__ == "__main__":
    main()
