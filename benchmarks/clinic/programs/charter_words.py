# /// clinic
# expect = ["PD10.ignored-scores"]
# allow = ["PD08.allocator-churn", "PD05.batch-too-small", "PD07.bfloat16-unused"]
# stratum = "twins"
# domain = "text"
# sizes = {WORDS = [5000, 7000], WIDTH = [96, 128]}
# ///
"""Masked words of medieval charters: guess one word in seven."""

import time

import torch
from torch import nn
from torch.nn import functional as F

WORDS = 6000
WIDTH = 112
LENGTH = 48
BATCH = 24
STEPS = 200
MASK, IGNORED = 1, -100


class Guesser(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.mix = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.out = nn.Linear(WIDTH, WORDS)

    def forward(self, words, labels):
        hidden = self.mix(self.words(words))[0]
        counts = labels != IGNORED  # well
        hidden, labels = hidden[counts], labels[counts]  # well
        scores = self.out(hidden)  # here
        return F.cross_entropy(scores.reshape(-1, WORDS), labels.reshape(-1), ignore_index=IGNORED)


def charters(g):
    words = torch.randint(2, WORDS, (BATCH, 1), generator=g) + torch.arange(LENGTH) * 7
    words = words % (WORDS - 2) + 2
    hidden = torch.rand(words.shape, generator=g) < 1 / 7
    return words.masked_fill(hidden, MASK), words.masked_fill(~hidden, IGNORED)


def main():
    torch.manual_seed(9)
    g = torch.Generator().manual_seed(9)
    model = Guesser()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    for step in range(STEPS):
        if step == 10:
            began = time.perf_counter()
        words, labels = charters(g)
        loss = model(words, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"{step:4d} {loss.item():.3f}")
    print(f"{BATCH * (STEPS - 10) / (time.perf_counter() - began):.1f} charters/s")


if __name__ == "__main__":
    main()
