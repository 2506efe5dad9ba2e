# /// clinic
# expect = ["PD03.collate", "PD03.too-few-workers"]
# allow = ["PD04.automatic-collections", "PD08.allocator-churn"]
# stratum = "twins"
# domain = "speech"
# sizes = {BANDS = [36, 44], LONGEST = [110, 140]}
# severities = {HIDDEN = [160, 96, 32]}
# ///
"""Recognises spoken commands from frames of a filter bank."""

import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BANDS = 40
LONGEST = 120
HIDDEN = 96


class Commands(Dataset):
    def __init__(self, count):
        generator = np.random.default_rng(3)
        lengths = generator.integers(LONGEST // 2, LONGEST, count)
        self.frames = [generator.normal(size=(length, BANDS)).astype(np.float32) for length in lengths]
        self.words = generator.integers(0, 35, count)

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, index):
        return self.frames[index], int(self.words[index])


def collate(rows):  # here
    longest = max(len(frames) for frames, _ in rows)
    padded = [np.pad(frames, ((0, longest - len(frames)), (0, 0))) for frames, _ in rows]
    frames = torch.tensor([one.tolist() for one in padded])  # sick here
    frames = torch.from_numpy(np.stack(padded))  # well
    lengths = torch.tensor([len(frames) for frames, _ in rows])
    return frames, lengths, torch.tensor([word for _, word in rows])


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(BANDS, HIDDEN, 5, padding=2),
            nn.ReLU(),
            nn.Conv1d(HIDDEN, HIDDEN, 5, padding=2),
            nn.ReLU(),
            nn.Conv1d(HIDDEN, HIDDEN, 3, padding=1),
            nn.ReLU(),
        )
        self.head = nn.Linear(HIDDEN, 35)

    def forward(self, frames, lengths):
        hidden = self.layers(frames.transpose(1, 2))
        inside = torch.arange(hidden.shape[2])[None] < lengths[:, None]
        return self.head((hidden * inside[:, None]).sum(2) / lengths[:, None])


class Trainer:
    def __init__(self, epochs):
        torch.manual_seed(0)
        self.epochs = epochs
        self.model = Recogniser()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=5e-4)
        self.loader = DataLoader(Commands(1280), batch_size=32, shuffle=True, collate_fn=collate)  # here

    def epoch(self):
        total = torch.zeros(())
        for frames, lengths, words in self.loader:
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(frames, lengths), words)
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
        return total.item() / len(self.loader)

    def run(self):
        print(f"first epoch: {self.epoch():.3f}")
        began = time.perf_counter()
        for number in range(1, self.epochs):
            print(f"epoch {number}: {self.epoch():.3f}")
        done = (self.epochs - 1) * len(self.loader.dataset)
        print(f"{done / (time.perf_counter() - began):.1f} samples/s")


if __name__ == "__main__":
    Trainer(epochs=5).run()
