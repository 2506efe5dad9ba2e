# /// clinic
# stratum = "decoys"
# resembles = ["PD05", "PD10"]
# allow = ["PD05.batch-too-small"]
# domain = "text"
# sizes = {WIDTH = [96, 128]}
# ///
"""Lines of different length, each batch padded to its own longest; attention with a mask, and a sort that is read whole."""

import time

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

WIDTH = 112
WORDS = 900
STEPS = 240


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.queries, self.keys, self.values = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.layers = nn.Sequential(nn.Linear(WIDTH, 6 * WIDTH), nn.GELU(), nn.Linear(6 * WIDTH, WIDTH))
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, words):
        h = self.words(words)
        decay = torch.tril(torch.ones(words.shape[1], words.shape[1]))
        mixed = ((self.queries(h) @ self.keys(h).transpose(1, 2)) * decay) @ self.values(h)
        h = h + mixed / words.shape[1]
        return self.out((h + self.layers(h)).mean(1)).squeeze(1)


def line(g):
    length = int(torch.randint(20, 70, (1,), generator=g))
    return torch.randint(1, WORDS, (length,), generator=g)


def spread(scores, targets):
    return (scores.sort().values - targets.sort().values).square().mean()


def main():
    torch.manual_seed(3)
    g = torch.Generator().manual_seed(3)
    lines = [line(g) for _ in range(1200)]
    model = Reader()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for step in range(STEPS):
        if step == 20:
            began = time.perf_counter()
        picked = torch.randint(len(lines), (48,), generator=g).tolist()
        words = pad_sequence([lines[i] for i in picked], batch_first=True)
        scores = model(words)
        targets = torch.tensor([float(len(lines[i])) / 70 for i in picked])
        loss = nn.functional.mse_loss(scores, targets) + 0.1 * spread(scores, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 60 == 0:
            print(step, round(loss.item(), 4))
    print(f"{48 * (STEPS - 20) / (time.perf_counter() - began):.1f} lines/s")


if __name__ == "__main__":
    main()
