# /// clinic
# expect = ["PD09.time-loop"]
# stratum = "twins"
# domain = "time series"
# sizes = {LEVELS = [20, 40], HIDDEN = [90, 130]}
# severities = {TICKS = [12, 32, 80]}
# ///
"""Where will a price go? A recurrent network over the last states of an order book."""

import time

import torch
from torch import nn

LEVELS = 30
HIDDEN = 110
TICKS = 32
BATCH = 48
SECONDS = 5.0


class Book(nn.Module):
    def __init__(self):
        super().__init__()
        self.entry = nn.Linear(2 * LEVELS, 96)
        self.cell = nn.GRUCell(96, HIDDEN)  # sick
        self.gru = nn.GRU(96, HIDDEN, batch_first=True)  # well
        self.out = nn.Linear(HIDDEN, 3)

    def forward(self, book):
        states = torch.relu(self.entry(book))
        memory = torch.zeros(len(book), HIDDEN)  # sick
        for tick in range(book.shape[1]):  # sick
            memory = self.cell(states[:, tick], memory)  # sick here
        memory = self.gru(states)[1][0]  # well
        return self.out(memory)


def main():
    torch.manual_seed(13)
    volumes = torch.rand(6000, 2 * LEVELS)
    moves = (volumes[:, :LEVELS].sum(1) > volumes[:, LEVELS:].sum(1)).long()
    model = Book()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    steps, began = 0, None
    while began is None or time.perf_counter() - began < SECONDS:
        if steps == 10:
            began = time.perf_counter()
        ends = torch.randint(TICKS, len(volumes), (BATCH,))
        book = volumes[ends[:, None] - torch.arange(TICKS).flip(0)]
        loss = nn.functional.cross_entropy(model(book), moves[ends])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    print(f"loss {loss.item():.4f} after {steps} steps")
    print(f"{(steps - 10) * BATCH / (time.perf_counter() - began):.1f} samples/s")


if __name__ == "__main__":
    main()
