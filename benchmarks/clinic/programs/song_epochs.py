# /// clinic
# allow = ["PD05.batch-too-small"]
# stratum = "decoys"
# domain = "audio"
# sizes = {GENRES = [8, 24], CHANNELS = [30, 36]}
# ///
"""Sorts songs into genres; statistics are collected and memory is tidied after each epoch."""

import gc
import time

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

GENRES = 10
CHANNELS = 32
EPOCHS = 4
BATCH = 24


def spectrograms(count):
    return TensorDataset(torch.rand(count, 40, 64), torch.randint(0, GENRES, (count,)))


class Genre(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(40, 2 * CHANNELS, 5, padding=2),
            nn.BatchNorm1d(2 * CHANNELS),
            nn.ReLU(),
            nn.Conv1d(2 * CHANNELS, 4 * CHANNELS, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv1d(4 * CHANNELS, 4 * CHANNELS, 3, padding=1),
            nn.ReLU(),
        )
        self.out = nn.Linear(4 * CHANNELS, GENRES)

    def forward(self, songs):
        return self.out(self.layers(songs).amax(dim=2))


class Session:
    def __init__(self):
        self.songs = spectrograms(60 * BATCH)
        order = BatchSampler(RandomSampler(self.songs), BATCH, drop_last=True)
        self.loader = DataLoader(self.songs, batch_size=None, sampler=order)
        self.model = Genre()
        self.optimizer = torch.optim.RMSprop(self.model.parameters(), lr=1e-4)
        self.history = []

    def epoch(self):
        losses = []
        for songs, genres in self.loader:
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(songs), genres)
            loss.backward()
            self.optimizer.step()
            losses.append(loss.detach())
        self.history.append(torch.stack(losses).mean().item())
        gc.collect()
        print(f"epoch {len(self.history)}: {self.history[-1]:.4f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    session = Session()
    session.epoch()
    began = time.perf_counter()
    for _ in range(EPOCHS - 1):
        session.epoch()
    print(f"{(EPOCHS - 1) * len(session.songs) / (time.perf_counter() - began):.1f} songs/s")
