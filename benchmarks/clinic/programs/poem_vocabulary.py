# /// clinic
# allow = ["PD08.allocator-churn"]
# stratum = "decoys"
# domain = "text"
# sizes = {VOCABULARY = [5000, 9000], WIDTH = [180, 192, 204, 216]}
# ///
"""Writes poems: a small transformer whose last layer has one output for each word that occurs, and no more."""

import time

import torch
from torch import nn
from torch.nn import functional

VOCABULARY = 7000
WIDTH = 192
BATCH = 6
LENGTH = 40
LAYERS = 4
STEPS = 60


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        shape = (x.shape[0], x.shape[1], 4, -1)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(self.before(x)).chunk(3, dim=-1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.feed(self.after(x))


class Poet(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        self.layers = nn.Sequential(*[Layer() for _ in range(LAYERS)])
        self.word = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.word.weight = self.words.weight

    def forward(self, poems):
        return self.word(self.layers(self.words(poems) + self.places))


def main():
    torch.manual_seed(14)
    poems = torch.randint(0, VOCABULARY, (600, LENGTH + 1))
    model = Poet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    for step in range(STEPS):
        if step == 6:
            began = time.perf_counter()
        rows = poems[torch.randint(0, len(poems), (BATCH,))]
        loss = functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step}: {loss.item():.3f}")
    print(f"{(STEPS - 6) * BATCH * LENGTH / (time.perf_counter() - began):.0f} words/s")


if __name__ == "__main__":
    main()
