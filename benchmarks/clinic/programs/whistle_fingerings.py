# /// clinic
# expect = ["PD10.transform-length"]
# stratum = "twins"
# domain = "tin whistles"
# ///
"""Which holes are covered? Fingering and tuning of tin whistles from quarter-second clips.

The first stage is a bank of learned bore responses: long FIR filters that are applied in the frequency domain. What
comes out is rectified, pooled and read by a small residual net with two heads (fingering, cents off pitch).
"""

import argparse
import math
import time

import numpy as np
import torch
import torch.nn.functional as F
from scipy.fft import next_fast_len  # well
from torch import nn

RATE = 16_000
SCALE = [0, 2, 4, 5, 7, 9, 10, 11, 12, 14, 16, 17, 19, 21]  # semitones above the bell note, two octaves less one


def parse():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--clips", type=int, default=1600)
    p.add_argument("--held-out", type=int, default=256)
    p.add_argument("--seconds", type=float, default=0.25)
    p.add_argument("--taps", type=int, default=1024, help="length of a bore response")
    p.add_argument("--bores", type=int, default=16)
    p.add_argument("--width", type=int, default=48)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--seed", type=int, default=5)
    return p.parse_args()


def blow(count, seconds, rng):
    """Clips of whistles in D: breath noise, chiff at the start, weak upper partials, never quite in tune."""
    t = np.arange(int(RATE * seconds), dtype=np.float32) / RATE
    fingering = rng.integers(0, len(SCALE), count)
    cents = rng.normal(0, 18, count).clip(-45, 45)
    pitch = 587.33 * 2 ** (np.asarray(SCALE)[fingering] / 12 + cents / 1200)
    vibrato = 0.004 * rng.random(count) * rng.integers(0, 2, count)
    phase = 2 * np.pi * pitch[:, None] * (t + vibrato[:, None] / 30 * np.sin(2 * np.pi * 5.5 * t))
    phase = phase.astype(np.float32) + rng.uniform(0, 6.28, (count, 1)).astype(np.float32)
    clip = np.zeros((count, t.size), dtype=np.float32)
    for partial, level in enumerate((1.0, 0.35, 0.12, 0.05), start=1):
        strength = level * rng.uniform(0.5, 1.5, (count, 1)).astype(np.float32)
        clip += strength * np.sin(partial * phase)
    breath = rng.standard_normal((count, t.size), dtype=np.float32)
    chiff = np.exp(-t / 0.02) * rng.random((count, 1), dtype=np.float32)
    clip = clip * (1 - np.exp(-t / 0.012)) + breath * (0.08 + 0.5 * chiff)
    clip /= np.abs(clip).max(axis=1, keepdims=True)
    return torch.from_numpy(clip.astype(np.float32)), torch.from_numpy(fingering), torch.from_numpy(cents / 45).float()


class BoreBank(nn.Module):
    """Convolves a clip with every bore response (full convolution, cut to the clip's length)."""

    def __init__(self, bores, taps):
        super().__init__()
        t = torch.arange(taps) / RATE
        centre = torch.logspace(math.log10(550), math.log10(5500), bores)[:, None]
        ring = torch.exp(-t * centre * 0.08) * torch.cos(2 * math.pi * centre * t)
        self.response = nn.Parameter(ring / ring.norm(dim=1, keepdim=True))
        self.gain = nn.Parameter(torch.ones(bores, 1))

    def forward(self, clip):
        length = clip.shape[-1] + self.response.shape[-1] - 1  # sick here
        length = next_fast_len(clip.shape[-1] + self.response.shape[-1] - 1, real=True)  # well
        spectrum = torch.fft.rfft(clip, n=length)
        transfer = torch.fft.rfft(self.response * self.gain, n=length)
        out = torch.fft.irfft(spectrum.unsqueeze(1) * transfer, n=length)
        return out[..., : clip.shape[-1]]


class Residual(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.first = nn.Conv1d(width, width, 5, padding=2 * dilation, dilation=dilation)
        self.second = nn.Conv1d(width, width, 1)
        self.norm = nn.GroupNorm(8, width)

    def forward(self, x):
        return x + self.second(F.gelu(self.first(self.norm(x))))


class Listener(nn.Module):
    def __init__(self, bores, taps, width, fingerings):
        super().__init__()
        self.bank = BoreBank(bores, taps)
        self.enter = nn.Conv1d(bores, width, 9, stride=2, padding=4)
        self.blocks = nn.Sequential(*[Residual(width, d) for d in (1, 2, 4)])
        self.deeper = nn.Conv1d(width, 2 * width, 5, stride=2, padding=2)
        self.more = nn.Sequential(*[Residual(2 * width, d) for d in (1, 2)])
        self.fingering = nn.Linear(4 * width, fingerings)
        self.cents = nn.Linear(4 * width, 1)

    def forward(self, clip):
        x = F.avg_pool1d(self.bank(clip).abs(), 8)
        x = torch.log1p(10 * x)
        x = self.more(self.deeper(self.blocks(self.enter(x))))
        x = torch.cat([x.mean(-1), x.amax(-1)], dim=1)
        return self.fingering(x), self.cents(x).squeeze(1)


@torch.no_grad()
def judge(model, clips, fingering, cents, batch):
    model.eval()
    right, off = 0, 0.0
    for start in range(0, len(clips), batch):
        part = slice(start, start + batch)
        logits, guess = model(clips[part])
        right += (logits.argmax(1) == fingering[part]).sum().item()
        off += (guess - cents[part]).abs().sum().item() * 45
    model.train()
    return right / len(clips), off / len(clips)


def main():
    args = parse()
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    clips, fingering, cents = blow(args.clips + args.held_out, args.seconds, rng)
    train, held = slice(0, args.clips), slice(args.clips, None)

    model = Listener(args.bores, args.taps, args.width, len(SCALE))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    steps = args.epochs * (args.clips // args.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=steps)
    print(
        f"{sum(p.numel() for p in model.parameters()):,} parameters, {steps} steps, clips of {clips.shape[1]} samples"
    )

    seen, began = 0, time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for rows in torch.randperm(args.clips).split(args.batch):
            logits, guess = model(clips[train][rows])
            loss = F.cross_entropy(logits, fingering[train][rows]) + F.smooth_l1_loss(guess, cents[train][rows])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            seen += len(rows)
            total += loss.item() * len(rows)
        right, off = judge(model, clips[held], fingering[held], cents[held], args.batch)
        print(f"epoch {epoch}: loss {total / args.clips:.3f}, held out {right:.1%} right, {off:.1f} cents off")
    rate = seen / (time.perf_counter() - began)
    print(f"{rate:.1f} clips/s")


if __name__ == "__main__":
    main()
