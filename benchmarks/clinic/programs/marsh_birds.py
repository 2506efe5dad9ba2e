# /// clinic
# stratum = "decoys"
# resembles = ["PD15"]
# domain = "audio"
# allow = ["PD03", "PD05", "PD08", "PD10"]
# sizes = {TONES = [50, 80], WIDTH = [300, 380]}
# ///
"""Birds of a marsh by their calls. Spectra are made once and kept: after the first hundred steps all are there."""

import time

import torch
from torch import nn

TONES = 64
WIDTH = 340
CALLS = 3200
BATCH = 32
STEPS = 900
WARM = 100


def main():
    torch.manual_seed(15)
    calls = torch.randn(CALLS, 2 * (TONES - 1))
    kept = {}

    def spectrum(number):
        if number not in kept:
            kept[number] = torch.fft.rfft(calls[number]).abs()
        return kept[number]

    net = nn.Sequential(nn.Linear(TONES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 6))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    order = torch.arange(CALLS)
    for step in range(STEPS):
        if step == WARM:
            began = time.perf_counter()
        place = step * BATCH % CALLS
        if place == 0:
            order = torch.randperm(CALLS)
        seen = torch.stack([spectrum(number) for number in order[place : place + BATCH].tolist()])
        loss = nn.functional.cross_entropy(net(seen), seen[:, :6].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}, {len(kept)} spectra")
    print(f"{(STEPS - WARM) * BATCH / (time.perf_counter() - began):.1f} calls/s")


if __name__ == "__main__":
    main()
