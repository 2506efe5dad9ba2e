# /// clinic
# allow = ["PD08.allocator-churn"]
# stratum = "decoys"
# domain = "text"
# sizes = {WORDS = [2500, 4000], WIDTH = [120, 160]}
# ///
"""Which words stand beside each other? A table of words is most of the model, and a batch touches most of it."""

import time

import torch
from torch import nn

WORDS = 3000
WIDTH = 140
BATCH = 2048
STEPS = 160


class Neighbours(nn.Module):
    def __init__(self):
        super().__init__()
        self.word = nn.Embedding(WORDS, WIDTH)
        self.mix = nn.Sequential(nn.Linear(4 * WIDTH, WIDTH), nn.Tanh())

    def forward(self, context, word):
        return (self.mix(self.word(context).flatten(1)) * self.word(word)).sum(1)


def text(length):
    generator = torch.Generator().manual_seed(5)
    return torch.randint(0, WORDS, (length,), generator=generator)


def main():
    torch.manual_seed(5)
    words = text(200_000)
    model = Neighbours()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    for step in range(STEPS):
        if step == 8:
            began = time.perf_counter()
        middle = torch.randint(2, len(words) - 2, (BATCH,))
        context = torch.stack([words[middle + shift] for shift in (-2, -1, 1, 2)], dim=1)
        wrong = torch.randint(0, WORDS, (BATCH,))
        right, other = model(context, words[middle]), model(context, wrong)
        loss = nn.functional.softplus(other - right).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"{step}: {loss.item():.4f}")
    print(f"{(STEPS - 8) * BATCH / (time.perf_counter() - began):.0f} words/s")


main()
