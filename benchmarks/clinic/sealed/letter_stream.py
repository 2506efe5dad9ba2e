# /// clinic
# stratum = "decoys"
# domain = "language model"
# ///
"""Letter pairs to next letter: a bag of small n-gram features learnt from a stream that is read through a DataLoader."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

LETTERS, ORDER = 40, 6


class Stream(IterableDataset):
    """An endless walk over the letters, handed out as ready chunks. The walk has a state, so there is one reader."""

    def __init__(self, chunk, chunks, seed):
        self.chunk, self.chunks = chunk, chunks
        self.gen = torch.Generator().manual_seed(seed)
        self.table = torch.softmax(2.5 * torch.randn(LETTERS, LETTERS, generator=self.gen), 1).cumsum(1)
        self.state = torch.zeros(self.chunk, dtype=torch.long)

    def __iter__(self):
        for _ in range(self.chunks):
            rolls = torch.rand(ORDER + 1, self.chunk, 1, generator=self.gen)
            walk = []
            for roll in rolls:
                self.state = (self.table[self.state] < roll).sum(1).clamp_(max=LETTERS - 1)
                walk.append(self.state)
            letters = torch.stack(walk, 1)
            yield letters[:, :-1], letters[:, -1]


def model():
    return nn.Sequential(
        nn.Embedding(LETTERS, 32),
        nn.Flatten(),
        nn.Linear(ORDER * 32, 512),
        nn.ReLU(),
        nn.Linear(512, 512),
        nn.ReLU(),
        nn.Linear(512, LETTERS),
    )


class Learner:
    def __init__(self, chunk=768, chunks=320):
        torch.manual_seed(2)
        self.chunk = chunk
        self.loader = DataLoader(Stream(chunk, chunks, seed=2), batch_size=None, num_workers=0)
        self.net = model()
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3, fused=True)
        self.criterion = nn.CrossEntropyLoss()

    def learn(self, skip=8, every=125):
        total, read, begun = torch.zeros(()), 0, None
        for step, (context, letter) in enumerate(self.loader):
            if step == skip:
                begun = time.perf_counter()
            loss = self.criterion(self.net(context), letter)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
            read += len(letter) if begun else 0
            if (step + 1) % every == 0:
                print(f"{step + 1} chunks: {total.item() / every:.3f} nats per letter")
                total.zero_()
        return read / (time.perf_counter() - begun)


if __name__ == "__main__":
    print(f"{Learner().learn():.1f} letters/s")
