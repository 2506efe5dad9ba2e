# /// clinic
# expect = ["PD05.batch-too-small"]
# allow = ["PD08.allocator-churn"]
# stratum = "twins"
# beyond = true
# domain = "music"
# sizes = {NOTES = [80, 120], HIDDEN = [150, 190]}
# severities = {TUNES = [24, 8, 2]}
# ///
"""Continues melodies with an LSTM."""

import time

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

NOTES = 96
HIDDEN = 170
TUNES = 8
LENGTH = 24
SECONDS = 5.0


class Melody(nn.Module):
    def __init__(self):
        super().__init__()
        self.note = nn.Embedding(NOTES, 64)
        self.lstm = nn.LSTM(64, HIDDEN, batch_first=True)
        self.next = nn.Linear(HIDDEN, NOTES)

    def forward(self, tunes):
        return self.next(self.lstm(self.note(tunes))[0])


def songbook(count):
    steps = torch.randint(-3, 4, (count, LENGTH + 1)).cumsum(1)
    return TensorDataset((steps + torch.randint(0, NOTES, (count, 1))) % NOTES)


def main(rows):
    torch.manual_seed(9)
    book = songbook(4096)
    tunes = DataLoader(book, batch_size=None, sampler=BatchSampler(RandomSampler(book), rows, drop_last=True))  # here
    model = Melody()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    seen, steps, began = 0, 0, None
    while began is None or time.perf_counter() - began < SECONDS:
        for (notes,) in tunes:
            scores = model(notes[:, :-1])
            loss = nn.functional.cross_entropy(scores.flatten(0, 1), notes[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            steps, seen = steps + 1, seen + len(notes)
            if steps == 10:
                seen, began = 0, time.perf_counter()
            if began is not None and time.perf_counter() - began > SECONDS:
                break
    print(f"{steps} steps, loss {loss.item():.3f}")
    print(f"{seen / (time.perf_counter() - began):.1f} tunes/s")


if __name__ == "__main__":
    main(rows=TUNES)  # sick
    main(rows=128)  # well
