# /// clinic
# expect = ["PD03"]
# stratum = "twins"
# domain = "clips of birdsong"
# ///
"""Tells bird species apart in short clips cut out of long dawn chorus recordings.

The recordings are made up here (chirps over wind noise) and written as wav files,
one folder, as they would come from the recorders in the field.
"""

import os
import random
import time

import numpy as np
import torch
import torch.nn as nn
from scipy.io import wavfile
from torch.utils.data import DataLoader, Dataset

SR = 22050
SPECIES = ["wren", "blackcap", "chiffchaff", "robin", "dunnock", "siskin"]
N_REC = 48
REC_SECONDS = 100
CLIP_SECONDS = 1.5
BATCH = 32
EPOCHS = 5
CLIPS_PER_EPOCH = 1984

random.seed(7)
np.random.seed(7)
torch.manual_seed(7)


# ---------------------------------------------------------------- recordings
def song(kind, rng):
    """One phrase of a bird, about 0.3 s."""
    n = int(SR * rng.uniform(0.22, 0.38))
    t = np.arange(n) / SR
    low = 1800 + 850 * kind + rng.normal(0, 60)
    sweep = [900, -700, 250, 1300, -250, 500][kind]
    wobble = [0, 18, 9, 30, 45, 24][kind]
    f = low + sweep * t / t[-1] + 160 * np.sin(2 * np.pi * wobble * t)
    return np.sin(2 * np.pi * np.cumsum(f) / SR) * np.hanning(n)


def write_recording(path, kind, rng):
    n = SR * REC_SECONDS
    audio = rng.standard_normal(n, dtype=np.float32) * np.float32(0.04)
    pos = int(SR * 0.1)
    while pos < n - SR:
        s = song(kind, rng)
        audio[pos : pos + len(s)] += (rng.uniform(0.05, 0.3) * s).astype(np.float32)
        pos += int(SR * rng.uniform(0.5, 1.0))
    wavfile.write(path, SR, (np.clip(audio, -1, 1) * 32767).astype(np.int16))


def make_folder(folder="chorus"):
    os.makedirs(folder, exist_ok=True)
    rng = np.random.default_rng(11)
    listing = []
    for i in range(N_REC):
        kind = i % len(SPECIES)
        path = os.path.join(folder, f"{i:03d}_{SPECIES[kind]}.wav")
        write_recording(path, kind, rng)
        listing.append((path, kind))
    return listing


# ---------------------------------------------------------------- data set
class ChorusClips(Dataset):
    def __init__(self, listing, count, loudness=True):
        self.listing = listing
        self.count = count
        self.n = int(SR * CLIP_SECONDS)
        self.loudness = loudness

    def __len__(self):
        return self.count

    def __getitem__(self, k):
        path, kind = self.listing[k % len(self.listing)]
        _, wave = wavfile.read(path)  # sick here
        wave = wave.astype(np.float32) / 32768.0  # sick here
        _, wave = wavfile.read(path, mmap=True)  # well
        start = np.random.randint(0, len(wave) - self.n)
        clip = wave[start : start + self.n]
        clip = clip.astype(np.float32) / 32768.0  # well
        if self.loudness:
            clip = clip * np.float32(np.random.uniform(0.5, 1.5))
        return torch.from_numpy(clip), kind


# ---------------------------------------------------------------- model
def mel_matrix(n_fft, n_mels, fmin=500.0, fmax=10000.0):
    hz = lambda m: 700 * (10 ** (m / 2595) - 1)
    mel = lambda f: 2595 * np.log10(1 + f / 700)
    edges = hz(np.linspace(mel(fmin), mel(fmax), n_mels + 2))
    bins = np.linspace(0, SR / 2, n_fft // 2 + 1)
    up = (bins[None] - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    down = (edges[2:, None] - bins[None]) / (edges[2:] - edges[1:-1])[:, None]
    return torch.from_numpy(np.maximum(0, np.minimum(up, down))).float()


class LogMel(nn.Module):
    def __init__(self, n_fft=512, hop=256, n_mels=64):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        self.register_buffer("window", torch.hann_window(n_fft))
        self.register_buffer("mel", mel_matrix(n_fft, n_mels))

    @torch.no_grad()
    def forward(self, wave):
        spec = torch.stft(wave, self.n_fft, self.hop, window=self.window, return_complex=True)
        mel = self.mel @ spec.abs().square()
        return torch.log(mel + 1e-5).unsqueeze(1)


class BirdNet(nn.Module):
    def __init__(self, n_classes, width=24):
        super().__init__()
        self.front = LogMel()
        self.norm = nn.BatchNorm2d(1)
        layers, c = [], 1
        for out in (width, width * 2, width * 4):
            layers += [
                nn.Conv2d(c, out, 5 if c == 1 else 3, stride=2, padding=2 if c == 1 else 1, bias=False),
                nn.BatchNorm2d(out),
                nn.ReLU(inplace=True),
                nn.Conv2d(out, out, 3, padding=1, bias=False),
                nn.BatchNorm2d(out),
                nn.ReLU(inplace=True),
            ]
            c = out
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(c, n_classes)

    def forward(self, wave):
        x = self.body(self.norm(self.front(wave)))
        # average over frequency, strongest moment in time
        return self.head(x.mean(dim=2).amax(dim=2))


@torch.no_grad()
def check(net, loader):
    net.eval()
    good = total = 0
    for wave, kind in loader:
        good += (net(wave).argmax(1) == kind).sum().item()
        total += len(kind)
    net.train()
    return good / total


def main():
    listing = make_folder()
    held_out = listing[-12:]
    train_set = ChorusClips(listing[:-12], CLIPS_PER_EPOCH)
    test_set = ChorusClips(held_out, 128, loudness=False)
    train_loader = DataLoader(train_set, batch_size=BATCH, shuffle=True, drop_last=True)
    test_loader = DataLoader(test_set, batch_size=64)

    net = BirdNet(len(SPECIES))
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-3)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 4e-3, total_steps=EPOCHS * len(train_loader))
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)

    seen = 0
    t0 = time.perf_counter()
    for epoch in range(EPOCHS):
        running = 0.0
        for wave, kind in train_loader:
            opt.zero_grad()
            loss = criterion(net(wave), kind)
            loss.backward()
            opt.step()
            sched.step()
            running += loss.item()
            seen += len(kind)
        print(f"epoch {epoch}: loss {running / len(train_loader):.3f}")
    spent = time.perf_counter() - t0

    print(f"held out recordings: {check(net, test_loader):.3f} right")
    print(f"{seen / spent:.1f} samples/s")


if __name__ == "__main__":
    main()
