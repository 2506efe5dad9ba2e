# /// clinic
# expect = ["PD02.attention-by-hand"]
# stratum = "twins"
# domain = "language model"
# ///
"""A small character-level transformer that learns to write verse-like lines."""

import argparse
import math
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    vocab: int = 64
    dim: int = 128
    heads: int = 8
    layers: int = 2
    context: int = 320
    batch: int = 2
    lr: float = 6e-4
    compile: bool = False


def make_text(length: int, vocab: int, seed: int = 7) -> torch.Tensor:
    """A second-order walk over the alphabet: enough structure to learn something."""
    rng = np.random.default_rng(seed)
    jumps = rng.integers(0, vocab, size=(vocab, 4))
    picks = rng.integers(0, 4, size=length)
    text = np.empty(length, dtype=np.int64)
    state = 0
    for i, pick in enumerate(picks):
        state = int(jumps[state, pick])
        text[i] = state
    return torch.from_numpy(text)


class Attention(nn.Module):
    def __init__(self, cfg: Config):
        super().__init__()
        self.heads = cfg.heads
        self.qkv = nn.Linear(cfg.dim, 3 * cfg.dim)
        self.out = nn.Linear(cfg.dim, cfg.dim)
        future = torch.ones(cfg.context, cfg.context).triu(1).bool()  # sick
        self.register_buffer("future", future, persistent=False)  # sick

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(d // self.heads)  # sick here
        scores = scores.masked_fill(self.future[:t, :t], float("-inf"))  # sick here
        mixed = torch.softmax(scores, dim=-1) @ v  # sick here
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # well
        return self.out(mixed.transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, cfg: Config):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(cfg.dim), nn.LayerNorm(cfg.dim)
        self.att = Attention(cfg)
        self.mlp = nn.Sequential(nn.Linear(cfg.dim, 3 * cfg.dim), nn.GELU(), nn.Linear(3 * cfg.dim, cfg.dim))

    def forward(self, x):
        x = x + self.att(self.n1(x))
        return x + self.mlp(self.n2(x))


class Writer(nn.Module):
    def __init__(self, cfg: Config):
        super().__init__()
        self.tokens = nn.Embedding(cfg.vocab, cfg.dim)
        self.places = nn.Parameter(torch.randn(cfg.context, cfg.dim) * 0.02)
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.layers))
        self.norm = nn.LayerNorm(cfg.dim)
        self.head = nn.Linear(cfg.dim, cfg.vocab)

    def forward(self, idx):
        x = self.tokens(idx) + self.places[: idx.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    cfg = Config(compile=args.compile)
    text = make_text(200_000, cfg.vocab)
    model = Writer(cfg)
    step_model = torch.compile(model) if cfg.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.01)

    begun, seen = None, 0
    offsets = torch.arange(cfg.context + 1)
    for step in range(args.steps):
        if step == 5:
            begun = time.perf_counter()
        starts = torch.randint(0, len(text) - cfg.context - 1, (cfg.batch, 1))
        chunk = text[starts + offsets]
        logits = step_model(chunk[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, cfg.vocab), chunk[:, 1:].reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if begun is not None:
            seen += chunk[:, 1:].numel()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.3f}")
    print(f"{seen / (time.perf_counter() - begun):.1f} tokens/s")


if __name__ == "__main__":
    main()
