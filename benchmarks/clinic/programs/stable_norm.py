# /// clinic
# expect = ["PD07.conversions", "PD07.float64"]
# allow = ["PD08.allocator-churn"]
# stratum = "twins"
# domain = "text"
# sizes = {LENGTH = [56, 64], VOCABULARY = [200, 300]}
# severities = {NORMS = [2, 6, 16]}
# ///
"""A character model of mixing blocks, whose normalisation is written out."""

import time

import torch
from torch import nn

LENGTH = 64
VOCABULARY = 256
NORMS = 6
WIDTH = 128
BATCH = 32


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x):
        exact = x.double()  # sick here
        exact = x  # well
        centred = exact - exact.mean(dim=-1, keepdim=True)  # here
        normed = centred / (centred.pow(2).mean(dim=-1, keepdim=True) + 1e-6).sqrt()  # here
        return normed.to(x.dtype) * self.scale  # here


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.Sequential(*[Norm(WIDTH) for _ in range(NORMS)])
        self.mix = nn.Linear(LENGTH, LENGTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.mix(x.transpose(1, 2)).transpose(1, 2)
        return x + self.narrow(torch.relu(self.wide(self.norms(x))))


class Characters(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.out = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, text):
        return self.out(self.blocks(self.embedding(text)))


def batches(text, steps):
    for _ in range(steps):
        starts = torch.randint(0, len(text) - LENGTH, (BATCH,))
        yield text[starts[:, None] + torch.arange(LENGTH)]


def main(steps=110):
    torch.manual_seed(0)
    text = torch.randint(0, VOCABULARY, (100_000,))
    model = Characters()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step, window in enumerate(batches(text, steps)):
        if step == 10:
            began = time.perf_counter()
        loss = nn.functional.cross_entropy(model(window).flatten(0, 1), window.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    print(f"{(steps - 10) * BATCH / (time.perf_counter() - began):.2f} windows/s")


if __name__ == "__main__":
    main()
