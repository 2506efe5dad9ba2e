# /// clinic
# expect = ["PD02.attention-by-hand"]
# allow = ["PD08.allocator-churn"]
# stratum = "twins"
# domain = "sequences"
# sizes = {HEADS = [4, 8]}
# severities = {WINDOW = [96, 256, 640]}
# ///
"""Predicts the secondary structure of each residue from its window, with a small transformer."""

import math
import time

import torch
from torch import nn
from torch.nn import functional

HEADS = 4
WINDOW = 256
WIDTH = 24 * HEADS
BATCH = 2560 // WINDOW + 1
STEPS = 120


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # sick here
        mixed = scores.softmax(dim=-1) @ v  # sick here
        mixed = functional.scaled_dot_product_attention(q, k, v)  # well
        return self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class Structure(nn.Module):
    def __init__(self):
        super().__init__()
        self.residue = nn.Embedding(21, WIDTH)
        self.place = nn.Parameter(torch.randn(WINDOW, WIDTH) * 0.02)
        self.blocks = nn.Sequential(Block(), Block())
        self.classes = nn.Linear(WIDTH, 3)

    def forward(self, chain):
        return self.classes(self.blocks(self.residue(chain) + self.place))


def main():
    torch.manual_seed(11)
    model = Structure()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    chains = torch.randint(0, 21, (400, WINDOW))
    labels = (chains.roll(1, 1) + chains.roll(-1, 1)) % 3
    began = 0.0
    for step in range(STEPS):
        if step == 10:
            began = time.perf_counter()
        rows = torch.randint(0, len(chains), (BATCH,))
        loss = functional.cross_entropy(model(chains[rows]).transpose(1, 2), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(f"{step:4d} {loss.item():.4f}")
    print(f"{(STEPS - 10) * BATCH / (time.perf_counter() - began):.2f} samples/s")


main()
