# /// clinic
# expect = ["PD02.packed-sequences"]
# stratum = "twins"
# domain = "text"
# ///
"""Rank incident reports by urgency with an LSTM over their words; reports are 50 to 80 words long."""

import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence  # sick

WORDS, LONGEST, LEVELS = 800, 80, 4
REPORTS, BATCH, EPOCHS = 4000, 40, 4


def make_reports(generator):
    lengths = torch.randint(50, LONGEST + 1, (REPORTS,), generator=generator)
    levels = torch.randint(0, LEVELS, (REPORTS,), generator=generator)
    words = torch.randint(50, WORDS, (REPORTS, LONGEST), generator=generator)
    telling = torch.rand(REPORTS, LONGEST, generator=generator) < 0.3
    words = torch.where(telling, 1 + 10 * levels[:, None] + words % 10, words)
    words[torch.arange(LONGEST) >= lengths[:, None]] = 0
    return words, lengths, levels


class Ranker(nn.Module):
    def __init__(self, width=64, hidden=160):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width, padding_idx=0)
        self.lstm = nn.LSTM(width, hidden, batch_first=True)
        self.head = nn.Linear(hidden, LEVELS)

    def forward(self, words, lengths):
        vectors = self.embedding(words)
        packed = pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)  # sick here
        _, (state, _) = self.lstm(packed)  # sick here
        return self.head(state[-1])  # sick
        outputs, _ = self.lstm(vectors)  # well
        last = outputs[torch.arange(len(words)), lengths - 1]  # well
        return self.head(last)  # well


def main():
    generator = torch.Generator().manual_seed(17)
    words, lengths, levels = make_reports(generator)
    torch.manual_seed(3)
    model = Ranker()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(EPOCHS):
        start, total = time.perf_counter(), torch.zeros(())
        for rows in torch.randperm(REPORTS, generator=generator).split(BATCH):
            loss = F.cross_entropy(model(words[rows], lengths[rows]), levels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(rows)
        took = time.perf_counter() - start
        print(f"epoch {epoch}: loss {total / REPORTS:.3f}, {REPORTS / took:.0f} reports per second", flush=True)


if __name__ == "__main__":
    main()
