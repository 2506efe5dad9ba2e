# /// clinic
# expect = ["PD18"]
# stratum = "twins"
# domain = "genomics sequence tagging"
# ///
"""Trains a splice-site tagger on synthetic DNA reads."""

import time

import torch
import torch._dynamo
import torch.nn.functional as F
from torch import nn

LETTERS = 5
LABELS = 3
WIDTH = 64
BLOCKS = 2
BATCH = 24
FIRST_LENGTH = 120
GROW_BY, GROW_EVERY = 12, 35
STEPS = 420
WARMUP = 20

torch._dynamo.config.recompile_limit = 64


class Block(nn.Module):
    def __init__(self, dilation):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.conv = nn.Conv1d(WIDTH, WIDTH, 5, padding=2 * dilation, dilation=dilation)
        self.mix = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        h = self.conv(self.norm(x).transpose(1, 2)).transpose(1, 2)
        return x + self.mix(F.gelu(h))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(LETTERS, WIDTH)
        self.blocks = nn.Sequential(*[Block(2**i) for i in range(BLOCKS)])
        self.head = nn.Linear(WIDTH, LABELS)

    def forward(self, reads):
        return self.head(self.blocks(self.embed(reads)))


def reads(seed):
    gen = torch.Generator().manual_seed(seed)
    for step in range(STEPS):
        width = FIRST_LENGTH + step // GROW_EVERY * GROW_BY
        batch = torch.randint(1, LETTERS, (BATCH, width), generator=gen)
        yield batch, (batch + batch.roll(1, 1)) % LABELS


def main():
    torch.manual_seed(0)
    model = Tagger()
    fast = torch.compile(model, backend="aot_eager", dynamic=False)  # sick here
    fast = torch.compile(model, backend="aot_eager", dynamic=True)  # well
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for step, (batch, labels) in enumerate(reads(5)):
        if step == WARMUP:
            start = time.perf_counter()
        logits = fast(batch)
        loss = F.cross_entropy(logits.transpose(1, 2), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    rate = (STEPS - WARMUP) * BATCH / (time.perf_counter() - start)
    print(f"{rate:.1f} samples/s")


if __name__ == "__main__":
    main()
