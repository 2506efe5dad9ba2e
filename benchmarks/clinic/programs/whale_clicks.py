# /// clinic
# expect = ["PD03"]
# stratum = "twins"
# domain = "bioacoustics"
# sizes = {CLIP = [20480, 28672], CHANNELS = [14, 18]}
# ///
"""Species classifier for odontocete clicks, streamed from packed hydrophone shards."""

import argparse
import itertools
import logging
import os
import random
import struct
import tempfile
import time
import zlib

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy.signal import butter, sosfiltfilt
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

log = logging.getLogger("clicks")

CLIP = 24576
CHANNELS = 16
RATE = 96_000
SPECIES = 7
HEAD = struct.Struct("<IB")
BAND = butter(6, [4_000, 40_000], btype="bandpass", fs=RATE, output="sos")
NFFT, HOP = 256, 384
HANN = np.hanning(NFFT).astype(np.float32)


def write_shards(folder, shards, per_shard, seed=11):
    """One file per deployment; records are (size, species, deflated int16 samples)."""
    rng = np.random.default_rng(seed)
    t = np.arange(CLIP, dtype=np.float32) / RATE
    paths = []
    for s in range(shards):
        path = os.path.join(folder, f"deploy{s:02d}.rec")
        with open(path, "wb") as out:
            for _ in range(per_shard):
                kind = int(rng.integers(SPECIES))
                wave = rng.normal(0, 220, CLIP).astype(np.float32)
                centre = 9_000 + 4_200 * kind + rng.normal(0, 500)
                for onset in rng.uniform(0, t[-1], 3 + kind % 3):
                    env = np.exp(-0.5 * ((t - onset) / (4e-4 + 1e-4 * kind)) ** 2)
                    wave += rng.uniform(2_000, 6_000) * env * np.sin(2 * np.pi * centre * (t - onset))
                body = zlib.compress(wave.clip(-32000, 32000).astype("<i2").tobytes(), 6)
                out.write(HEAD.pack(len(body), kind))
                out.write(body)
        paths.append(path)
    return paths


def front_end(record):
    kind, body = record
    wave = np.frombuffer(zlib.decompress(body), dtype="<i2").astype(np.float32) / 32768.0
    wave = sosfiltfilt(BAND, wave).astype(np.float32)
    frames = np.lib.stride_tricks.sliding_window_view(wave, NFFT)[::HOP]
    power = np.abs(np.fft.rfft(frames * HANN, axis=1)[:, : NFFT // 2]) ** 2
    spec = np.log(power.T + 1e-7).astype(np.float32)
    spec = (spec - spec.mean()) / (spec.std() + 1e-5)
    return torch.from_numpy(spec[None]), kind


class ClickStream(IterableDataset):
    def __init__(self, paths, seed=0):
        self.paths = list(paths)
        self.seed = seed
        self.round = 0

    def records(self):
        order = list(self.paths)
        random.Random(self.seed + self.round).shuffle(order)
        for path in order:
            with open(path, "rb") as f:
                while head := f.read(HEAD.size):
                    size, kind = HEAD.unpack(head)
                    yield kind, f.read(size)

    def __iter__(self):
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        self.round += 1
        yield from itertools.islice(map(front_end, self.records()), first, None, step)  # sick here
        yield from map(front_end, itertools.islice(self.records(), first, None, step))  # well


class ClickNet(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, c, 5, stride=2, padding=2),
            nn.BatchNorm2d(c),
            nn.ReLU(),
            nn.Conv2d(c, 2 * c, 3, stride=2, padding=1),
            nn.BatchNorm2d(2 * c),
            nn.ReLU(),
            nn.Conv2d(2 * c, 3 * c, 3, stride=2, padding=1),
            nn.BatchNorm2d(3 * c),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.head = nn.Linear(3 * c, SPECIES)

    def forward(self, x):
        return self.head(self.body(x))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=12)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--lr", type=float, default=2e-3)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(0)

    with tempfile.TemporaryDirectory() as folder:
        paths = write_shards(folder, shards=8, per_shard=128)
        loader = DataLoader(
            ClickStream(paths),
            batch_size=args.batch,
            num_workers=args.workers,
            persistent_workers=args.workers > 0,
        )
        net = ClickNet(CHANNELS)
        opt = torch.optim.AdamW(net.parameters(), lr=args.lr, weight_decay=1e-2)
        seen, begin = 0, None
        for epoch in range(args.epochs):
            if epoch == 1:
                begin = time.perf_counter()
            total = hits = count = 0
            for spec, kind in loader:
                opt.zero_grad()
                out = net(spec)
                loss = F.cross_entropy(out, kind)
                loss.backward()
                opt.step()
                total += loss.item() * len(kind)
                hits += (out.argmax(1) == kind).sum().item()
                count += len(kind)
            if epoch:
                seen += count
            log.info("epoch %d loss %.4f acc %.3f", epoch, total / count, hits / count)
        spent = time.perf_counter() - begin
    print(f"throughput {seen / spent:.1f} clips/s")


if __name__ == "__main__":
    main()
