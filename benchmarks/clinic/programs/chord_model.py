# /// clinic
# expect = ["PD09"]
# allow = ["PD08.allocator-churn"]
# stratum = "twins"
# domain = "music"
# sizes = {BATCH = [60, 72]}
# severities = {UNITS = [900, 2500, 12000]}
# ///
"""Language model over chord symbols: 300 chords are in the songbook."""

import time

import torch
from torch import nn

BATCH = 64
UNITS = 2500
CHORDS = 300
BARS = 24


class ChordModel(nn.Module):
    def __init__(self, symbols):
        super().__init__()
        self.embed = nn.Embedding(CHORDS, 96)
        self.rnn = nn.GRU(96, 192, num_layers=2, batch_first=True)
        self.head = nn.Linear(192, symbols)

    def forward(self, bars):
        return self.head(self.rnn(self.embed(bars))[0])


class Songbook:
    def __init__(self, songs=500, seed=5):
        generator = torch.Generator().manual_seed(seed)
        follows = torch.randint(0, CHORDS, (CHORDS, 4), generator=generator)
        song = [torch.randint(0, CHORDS, (songs,), generator=generator)]
        for _ in range(BARS):
            song.append(follows[song[-1], torch.randint(0, 4, (songs,), generator=generator)])
        self.songs = torch.stack(song, dim=1)

    def batch(self, generator):
        rows = torch.randint(0, len(self.songs), (BATCH,), generator=generator)
        return self.songs[rows, :-1], self.songs[rows, 1:]


class Trainer:
    def __init__(self, steps=90):
        torch.manual_seed(5)
        self.steps, self.book = steps, Songbook()
        self.model = ChordModel(UNITS)  # sick
        self.model = ChordModel(CHORDS)  # well
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        self.generator = torch.Generator().manual_seed(6)

    def step(self):
        before, after = self.book.batch(self.generator)
        loss = nn.functional.cross_entropy(self.model(before).flatten(0, 1), after.flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def run(self):
        for number in range(self.steps):
            if number == 10:
                began = time.monotonic()
            loss = self.step()
            if number % 40 == 0:
                print(f"step {number} loss {loss.item():.3f}")
        print(f"{(self.steps - 10) * BATCH * BARS / (time.monotonic() - began):.1f} tokens/s")


if __name__ == "__main__":
    Trainer().run()
