# /// clinic
# expect = ["PD10.stride-afterwards"]
# stratum = "twins"
# domain = "bittern booms"
# ///
"""Bittern booms: find booming males in hydrophone-style night recordings from reed beds.

A learned filter bank sits on the raw waveform (2 kHz, booms lie between 90 and 200 Hz), followed by a small
convolutional encoder, a GRU over frames and two heads: boom present per frame, and the number of booms per clip.
"""

import argparse
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

RATE = 2000
CLIP = 4096
HOP = 8
FRAMES = CLIP // 64


def parse():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--clips", type=int, default=768)
    p.add_argument("--held-out", type=int, default=96)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--epochs", type=int, default=5)
    p.add_argument("--filters", type=int, default=48)
    p.add_argument("--taps", type=int, default=257)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=11)
    return p.parse_args()


def boom(rng, length):
    """One boom: a short intake, then a low, slightly falling tone with a soft envelope."""
    t = np.arange(length) / RATE
    f0 = rng.uniform(110, 180)
    phase = 2 * np.pi * (f0 * t - rng.uniform(2, 9) * t**2)
    envelope = np.sin(np.pi * np.linspace(0, 1, length)) ** 0.6
    return envelope * (np.sin(phase) + 0.3 * np.sin(2 * phase))


def night(rng, n):
    """n clips of reed-bed noise with zero to three booms each."""
    waves = rng.standard_normal((n, CLIP)).astype(np.float32)
    drift = np.cumsum(waves, axis=1)
    waves = 0.4 * waves + 0.02 * (drift - drift.mean(1, keepdims=True)).astype(np.float32)
    frames = np.zeros((n, FRAMES), np.float32)
    counts = np.zeros(n, np.int64)
    for i in range(n):
        for _ in range(rng.integers(0, 4)):
            length = int(rng.integers(420, 900))
            at = int(rng.integers(0, CLIP - length))
            waves[i, at : at + length] += (rng.uniform(0.3, 1.2) * boom(rng, length)).astype(np.float32)
            frames[i, at // 64 : (at + length) // 64] = 1.0
            counts[i] += 1
    return torch.from_numpy(waves), torch.from_numpy(frames), torch.from_numpy(counts)


class FilterBank(nn.Module):
    """Band-pass filters, started as windowed cosines spread over the band of interest, then learned."""

    def __init__(self, filters, taps):
        super().__init__()
        self.conv = nn.Conv1d(1, filters, taps, padding=taps // 2, bias=False)  # sick here
        self.conv = nn.Conv1d(1, filters, taps, stride=HOP, padding=taps // 2, bias=False)  # well
        t = (torch.arange(taps) - taps // 2) / RATE
        centre = torch.linspace(40, 400, filters)[:, None]
        start = torch.cos(2 * torch.pi * centre * t) * torch.hann_window(taps, periodic=False)
        self.conv.weight.data.copy_((start / start.norm(dim=1, keepdim=True))[:, None])
        self.norm = nn.BatchNorm1d(filters)

    def forward(self, wave):
        bands = self.conv(wave[:, None])
        bands = bands[:, :, ::HOP]  # sick here
        return self.norm(torch.log1p(bands.abs()))


class Listener(nn.Module):
    def __init__(self, filters, taps):
        super().__init__()
        self.bank = FilterBank(filters, taps)
        self.encoder = nn.Sequential(
            nn.Conv1d(filters, 96, 7, padding=3),
            nn.BatchNorm1d(96),
            nn.GELU(),
            nn.Conv1d(96, 96, 5, stride=2, padding=2),
            nn.BatchNorm1d(96),
            nn.GELU(),
            nn.Conv1d(96, 128, 5, stride=2, padding=2),
            nn.BatchNorm1d(128),
            nn.GELU(),
            nn.Conv1d(128, 128, 3, stride=2, padding=1),
            nn.GELU(),
        )
        self.memory = nn.GRU(128, 64, batch_first=True, bidirectional=True)
        self.presence = nn.Linear(128, 1)
        self.count = nn.Linear(256, 4)

    def forward(self, wave):
        h = self.encoder(self.bank(wave)).transpose(1, 2)
        h, _ = self.memory(h)
        clip = torch.cat([h.mean(1), h.amax(1)], dim=1)
        return self.presence(h).squeeze(-1), self.count(clip)


def objective(out, frames, counts):
    presence, count = out
    return F.binary_cross_entropy_with_logits(presence, frames) + 0.5 * F.cross_entropy(count, counts)


@torch.no_grad()
def listen(model, loader):
    model.eval()
    hit = seen = right = clips = 0
    for wave, frames, counts in loader:
        presence, count = model(wave)
        hit += ((presence > 0) == (frames > 0.5)).sum().item()
        seen += frames.numel()
        right += (count.argmax(1) == counts).sum().item()
        clips += len(counts)
    model.train()
    return hit / seen, right / clips


def main():
    args = parse()
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    train = DataLoader(TensorDataset(*night(rng, args.clips)), args.batch, shuffle=True, drop_last=True)
    held = DataLoader(TensorDataset(*night(rng, args.held_out)), 32)

    model = Listener(args.filters, args.taps)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    total = args.epochs * len(train)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=total)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e3:.0f}k parameters, {total} steps")

    seen = 0
    began = time.perf_counter()
    for epoch in range(args.epochs):
        running = 0.0
        for wave, frames, counts in train:
            wave = wave * (0.8 + 0.4 * torch.rand(len(wave), 1))
            loss = objective(model(wave), frames, counts)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            optimizer.step()
            schedule.step()
            running += loss.item()
            seen += len(wave)
        frame_acc, count_acc = listen(model, held)
        print(f"epoch {epoch}  loss {running / len(train):.3f}  frames {frame_acc:.3f}  counts {count_acc:.3f}")
    rate = seen / (time.perf_counter() - began)
    print(f"{rate:.1f} clips/s")


if __name__ == "__main__":
    main()
