# /// clinic
# stratum = "decoys"
# resembles = ["PD15"]
# domain = "text"
# allow = ["PD05", "PD09", "PD10"]
# sizes = {WIDTH = [48, 80]}
# ///
"""Verses of ballads, the shortest first in every epoch: steps get longer because the verses do."""

import time

import torch
from torch import nn

WIDTH = 64
VERSES = 4800
BATCH = 16
SECONDS = 6.0


class Singer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(500, WIDTH)
        self.line = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.next = nn.Linear(WIDTH, 500)

    def forward(self, verse):
        return self.next(self.line(self.words(verse))[0])


def main():
    torch.manual_seed(6)
    lengths = sorted(torch.randint(6, 90, (VERSES // BATCH,)).tolist())
    model = Singer()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    words, losses, steps, began = 0, [], 0, None
    while began is None or time.perf_counter() - began < SECONDS:
        if steps == 20:
            began, words = time.perf_counter(), 0
        verse = torch.randint(0, 500, (BATCH, lengths[steps % len(lengths)]))
        loss = nn.functional.cross_entropy(model(verse[:, :-1]).flatten(0, 1), verse[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        words += verse.numel()
        steps += 1
    print(f"loss {losses[-1]:.4f}")
    print(f"{words / (time.perf_counter() - began):.1f} samples/s")


if __name__ == "__main__":
    main()
