# /// clinic
# stratum = "out-of-scope"
# domain = "speech"
# ///
"""Keyword spotting on a federated client.

Every step's update is sent to the server: quantised to bytes, packed and signed. Here the sending is a ledger
in memory; the packing is the real one.
"""

import bz2
import hashlib
import hmac
import time

import torch
from torch import nn

BANDS, FRAMES, WORDS = 40, 98, 12
KEY = b"client-0041"


class Spotter(nn.Module):
    def __init__(self):
        super().__init__()
        self.ears = nn.Sequential(
            nn.Conv1d(BANDS, 64, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv1d(64, 96, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv1d(96, 128, 3, padding=1),
            nn.ReLU(),
        )
        self.name = nn.Linear(128, WORDS)

    def forward(self, sound):
        return self.name(self.ears(sound).mean(-1))


class Ledger:
    """What the server would receive."""

    def __init__(self):
        self.bytes, self.entries, self.last = 0, 0, b""

    def send(self, update):
        top = update.abs().max()
        coded = (update / top * 127).round().to(torch.int8)
        parcel = bz2.compress(coded.numpy().tobytes(), 9)
        self.last = hmac.new(KEY, self.last + parcel, hashlib.sha256).digest()
        self.bytes += len(parcel)
        self.entries += 1


def recordings(count, gen):
    words = torch.randint(0, WORDS, (count,), generator=gen)
    shapes = torch.randn(WORDS, BANDS, FRAMES, generator=gen)
    sounds = shapes[words] * 0.4 + torch.randn(count, BANDS, FRAMES, generator=gen)
    return sounds, words


def client(steps=600, batch=24, skip=8):
    gen = torch.Generator().manual_seed(6)
    torch.manual_seed(6)
    sounds, words = recordings(1600, gen)
    model, ledger = Spotter(), Ledger()
    weights = list(model.parameters())
    optimizer = torch.optim.SGD(weights, lr=0.05, momentum=0.9)
    for step in range(steps):
        if step == skip:
            start = time.perf_counter()
        pick = torch.randint(0, len(words), (batch,), generator=gen)
        loss = nn.functional.cross_entropy(model(sounds[pick]), words[pick])
        optimizer.zero_grad()
        loss.backward()
        ledger.send(torch.cat([w.grad.flatten() for w in weights]))
        optimizer.step()
        if (step + 1) % 200 == 0:
            print(f"step {step + 1}: loss {loss.item():.3f}, {ledger.bytes / ledger.entries / 1024:.0f} KiB per parcel")
    return (steps - skip) * batch / (time.perf_counter() - start)


if __name__ == "__main__":
    print(f"{client():.1f} recordings/s")
