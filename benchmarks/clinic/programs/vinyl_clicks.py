# /// clinic
# expect = ["PD13.idle-cpus"]
# stratum = "twins"
# domain = "declicking of digitised vinyl with a 1-D U-Net (argparse, main)"
# ///
"""Takes clicks and crackle out of digitised vinyl with a small one-dimensional U-Net.

    python vinyl_clicks.py sick --epochs 8 --width 24

Clean excerpts are synthesised (a few decaying partials over a bass), the clicks are added as they are in real pressings:
rare, short, loud. The network learns the clean waveform from the damaged one.
"""

import argparse
import math
import random
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


RATE = 16000
EXCERPT = 4096


def make_reproducible(seed):
    """Two runs with one seed shall print the same numbers."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(1)  # sick here


def synthesise(count, rng):
    """Clean excerpts of music, as (count, EXCERPT) float32."""
    t = np.arange(EXCERPT, dtype=np.float32) / RATE
    clean = np.zeros((count, EXCERPT), dtype=np.float32)
    for _ in range(4):
        pitch = (110 * 2 ** (rng.integers(0, 36, (count, 1)) / 12)).astype(np.float32)
        decay = rng.uniform(1, 12, (count, 1)).astype(np.float32)
        phase = rng.uniform(0, 2 * math.pi, (count, 1)).astype(np.float32)
        clean += 0.2 * np.exp(-decay * t) * np.sin(2 * math.pi * pitch * t + phase)
    return clean


def damage(clean, rng):
    """Adds clicks (decaying bursts of some 30 samples) and surface noise."""
    count = len(clean)
    damaged = clean + 0.01 * rng.standard_normal(clean.shape, dtype=np.float32)
    burst = np.exp(-np.arange(32, dtype=np.float32) / 8) * np.cos(np.arange(32, dtype=np.float32) * 1.3)
    for row in range(count):
        for start in rng.integers(0, EXCERPT - 32, 12):
            damaged[row, start : start + 32] += rng.normal(0, 0.8) * burst
    return damaged


def make_set(count, seed):
    rng = np.random.default_rng(seed)
    clean = synthesise(count, rng)
    damaged = damage(clean, rng).astype(np.float32)
    return TensorDataset(torch.from_numpy(damaged).unsqueeze(1), torch.from_numpy(clean).unsqueeze(1))


class Block(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(inputs, outputs, 9, padding=4),
            nn.GroupNorm(4, outputs),
            nn.GELU(),
            nn.Conv1d(outputs, outputs, 9, padding=4),
            nn.GELU(),
        )

    def forward(self, x):
        return self.body(x)


class UNet(nn.Module):
    def __init__(self, width, depth=3):
        super().__init__()
        widths = [width * 2**level for level in range(depth)]
        self.stem = nn.Conv1d(1, width, 15, stride=2, padding=7)
        self.down = nn.ModuleList(Block(a, b) for a, b in zip([width, *widths[:-1]], widths))
        self.bottom = Block(widths[-1], widths[-1])
        self.up = nn.ModuleList(Block(2 * b, a) for a, b in zip([width, *widths[:-1]], widths))
        self.pool = nn.AvgPool1d(2)
        self.out = nn.ConvTranspose1d(width, 1, 4, stride=2, padding=1)

    def forward(self, x):
        h = self.stem(x)
        kept = []
        for block in self.down:
            h = block(h)
            kept.append(h)
            h = self.pool(h)
        h = self.bottom(h)
        for block, skip in zip(reversed(self.up), reversed(kept)):
            h = nn.functional.interpolate(h, scale_factor=2, mode="nearest")
            h = block(torch.cat([h, skip], dim=1))
        return x - self.out(h)


def restoration_loss(restored, clean):
    """Waveform error, and the error of its first difference, in which clicks stand out."""
    wave = nn.functional.l1_loss(restored, clean)
    edges = nn.functional.l1_loss(restored.diff(dim=-1), clean.diff(dim=-1))
    return wave + 0.5 * edges


@torch.inference_mode()
def signal_to_noise(model, loader):
    model.eval()
    signal = noise = 0.0
    for damaged, clean in loader:
        restored = model(damaged)
        signal += clean.square().sum().item()
        noise += (restored - clean).square().sum().item()
    model.train()
    return 10 * math.log10(signal / noise)


def train(args):
    loader = DataLoader(make_set(args.excerpts, args.seed), batch_size=args.batch, shuffle=True, drop_last=True)
    held_out = DataLoader(make_set(32, args.seed + 1), batch_size=32)
    model = UNet(args.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(loader))

    started = time.time()
    print(f"untreated: {signal_to_noise(nn.Identity(), held_out):.2f} dB")
    for epoch in range(args.epochs):
        total = 0.0
        for damaged, clean in loader:
            loss = restoration_loss(model(damaged), clean)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}, {time.time() - started:.1f} s", flush=True)
    print(f"restored: {signal_to_noise(model, held_out):.2f} dB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--excerpts", type=int, default=480)
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    make_reproducible(args.seed)  # here
    train(args)


if __name__ == "__main__":
    main()
