# /// clinic
# endless = true
# stratum = "decoys"
# domain = "music, note onset detection"
# ///
"""Note onsets and pitches from synthetic choir recordings, a convolutional recurrent tagger over log-spectrograms."""

import argparse
import gc
import math
import time

import torch
import torch.nn.functional as F
from torch import nn

RATE, HOP, FFT, PITCHES = 8000, 160, 512, 24


def voice(pitch, length, generator):
    """A sung note: three partials, a little vibrato, a soft attack."""
    t = torch.arange(length) / RATE
    f0 = 130.8 * 2 ** (pitch / 12)
    vibrato = 1 + 0.006 * torch.sin(2 * math.pi * 5.5 * t)
    wave = sum(torch.sin(2 * math.pi * f0 * k * t * vibrato) / k for k in (1, 2, 3))
    attack = (t / 0.05).clamp(max=1) * torch.exp(-0.8 * t)
    return wave * attack * (0.3 + 0.7 * torch.rand((), generator=generator))


class Songbook:
    """Mixed excerpts of three seconds with a frame-level piano roll."""

    def __init__(self, excerpts, seconds=3.0, seed=9):
        g = torch.Generator().manual_seed(seed)
        length = int(seconds * RATE)
        frames = length // HOP + 1
        self.audio = 0.01 * torch.randn(excerpts, length, generator=g)
        self.onset = torch.zeros(excerpts, frames, PITCHES)
        for n in range(excerpts):
            for _ in range(9):
                pitch = int(torch.randint(0, PITCHES, (), generator=g))
                start = int(torch.randint(0, length - 4000, (), generator=g))
                note = voice(pitch, min(6000, length - start), g)
                self.audio[n, start : start + len(note)] += note
                self.onset[n, start // HOP : start // HOP + 2, pitch] = 1
        self.generator = g

    def batches(self, size):
        order = torch.randperm(len(self.audio), generator=self.generator)
        for rows in order.split(size):
            if len(rows) == size:
                yield self.audio[rows], self.onset[rows]


class Spectrogram(nn.Module):
    def __init__(self):
        super().__init__()
        # float64 because the taper is compared bit by bit with the one of the annotation tool
        taper = torch.hann_window(FFT, dtype=torch.float64)
        self.register_buffer("taper", taper.float())

    @torch.no_grad()
    def forward(self, audio):
        spectrum = torch.stft(audio, FFT, HOP, window=self.taper, center=True, return_complex=True)
        return torch.log1p(10 * spectrum.abs())[:, :192]


class Tagger(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.front = Spectrogram()
        self.conv = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d((2, 1)),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d((4, 1)),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d((4, 1)),
        )
        self.context = nn.MultiheadAttention(2 * width * 6, 4, batch_first=True)
        self.head = nn.Linear(2 * width * 6, PITCHES)

    def forward(self, audio):
        z = self.conv(self.front(audio).unsqueeze(1)).flatten(1, 2).transpose(1, 2)
        summary = F.avg_pool1d(z.transpose(1, 2), 10, ceil_mode=True).transpose(1, 2)
        mixed, self.last_map = self.context(summary, summary, summary)
        self.last_map = self.last_map.detach()
        return self.head(z + mixed.mean(1, keepdim=True))


class Rehearsal:
    def __init__(self, args):
        self.args = args
        self.songs = Songbook(args.excerpts)
        self.model = Tagger()
        self.optimizer = torch.optim.RMSprop(self.model.parameters(), lr=args.lr)
        self.weight = torch.full((PITCHES,), 12.0)
        self.step, self.since = 0, time.perf_counter()
        self.tidy()
        gc.freeze()

    @staticmethod
    def tidy():
        gc.collect()

    def learn(self, audio, onset):
        loss = F.binary_cross_entropy_with_logits(self.model(audio), onset, pos_weight=self.weight)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.optimizer.step()
        return loss.detach()

    def run(self):
        for _ in range(self.args.epochs):
            for audio, onset in self.songs.batches(self.args.batch):
                loss = self.learn(audio, onset)
                self.tidy()
                self.step += 1
                if self.step % self.args.report == 0:
                    now = time.perf_counter()
                    print(
                        f"{self.step:6d} loss {loss.item():.4f}  {self.args.report / (now - self.since):.2f} steps/s",
                        flush=True,
                    )
                    self.since = now


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--excerpts", type=int, default=160)
    ap.add_argument("--batch", type=int, default=4)
    ap.add_argument("--lr", type=float, default=5e-4)
    ap.add_argument("--epochs", type=int, default=5000)
    ap.add_argument("--report", type=int, default=20)
    torch.manual_seed(6)
    Rehearsal(ap.parse_args()).run()
