# /// clinic
# expect = ["PD10.ignored-scores"]
# stratum = "twins"
# domain = "stamp albums, masked catalogue numbers"
# ///
"""
Stamp collecting: which stamp is missing at a place of an album page?

A bidirectional transformer over catalogue numbers, trained by masking (Cloze) as
in sequential recommendation. Albums are synthetic: collectors follow a few issues
in their order, skip some values and mix in single stamps that are popular.
"""

import math
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

PAD, MASK, FIRST = 0, 1, 2
IGNORE = -100


class Albums:
    """Pages of `length` catalogue numbers as one tensor, with masked copies on demand."""

    def __init__(self, count, length, issues, values, seed):
        rng = np.random.default_rng(seed)
        self.vocabulary = FIRST + issues * values
        popular = rng.zipf(1.3, size=(count, length)) % (issues * values)
        pages = np.empty((count, length), dtype=np.int64)
        issue = rng.integers(issues, size=count)
        value = rng.integers(values // 2, size=count)
        for place in range(length):
            ended = (rng.random(count) < 0.08) | (value >= values)
            related = (issue * 7 + rng.integers(1, 4, size=count)) % issues
            issue = np.where(ended, related, issue)
            value = np.where(ended, rng.integers(values // 2, size=count), value)
            single = rng.random(count) < 0.1
            pages[:, place] = np.where(single, popular[:, place], issue * values + value) + FIRST
            value = value + rng.choice([1, 1, 1, 2], size=count)
        self.pages = torch.from_numpy(pages)

    def __len__(self):
        return len(self.pages)

    def batches(self, size, generator):
        for rows in torch.randperm(len(self), generator=generator).split(size):
            yield self.pages[rows]

    def masked(self, pages, share, generator):
        hidden = torch.rand(pages.shape, generator=generator) < share
        hidden[:, -1] |= ~hidden.any(1)
        tokens = pages.masked_fill(hidden, MASK)
        labels = pages.masked_fill(~hidden, IGNORE)
        return tokens, labels


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v)
        x = x + self.mix(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.inner(self.norm2(x))


class AlbumModel(nn.Module):
    def __init__(self, vocabulary, length, width=64, layers=2, heads=4):
        super().__init__()
        self.stamps = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(torch.zeros(length, width))
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(layers)])
        self.transform = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        self.drop = nn.Dropout(0.1)
        nn.init.normal_(self.stamps.weight, std=0.05)

    def encode(self, tokens):
        x = self.drop(self.stamps(tokens) + self.places)
        for layer in self.layers:
            x = layer(x)
        return x

    def scores(self, x):
        return F.linear(self.transform(x), self.stamps.weight, self.bias)

    def forward(self, tokens, labels):
        x = self.encode(tokens)
        scores = self.scores(x)  # sick here
        return F.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=IGNORE)  # sick here
        asked = labels != IGNORE  # well
        return F.cross_entropy(self.scores(x[asked]), labels[asked])  # well


class Collector:
    def __init__(self, epochs=18, batch=64, share=0.2, peak=3e-3, seed=5):
        torch.manual_seed(seed)
        self.epochs, self.batch, self.share = epochs, batch, share
        self.albums = Albums(3072, 40, issues=80, values=25, seed=seed)
        self.unseen = Albums(512, 40, issues=80, values=25, seed=seed + 1)
        self.model = AlbumModel(self.albums.vocabulary, 40)
        self.generator = torch.Generator().manual_seed(seed)
        decay = [p for p in self.model.parameters() if p.ndim > 1]
        plain = [p for p in self.model.parameters() if p.ndim <= 1]
        groups = [{"params": decay, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=peak, fused=True)
        self.steps = epochs * math.ceil(len(self.albums) / batch)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self.rate)

    def rate(self, step):
        warm = 0.1 * self.steps
        return min(step / warm, 1.0) * 0.5 * (1 + math.cos(math.pi * step / self.steps))

    @torch.inference_mode()
    def hit_rate(self, top=5):
        """Share of pages whose last stamp is among the first `top` suggestions."""
        self.model.eval()
        hits = 0
        for pages in self.unseen.pages.split(256):
            tokens = pages.clone()
            tokens[:, -1] = MASK
            best = self.model.scores(self.model.encode(tokens)[:, -1]).topk(top).indices
            hits += (best == pages[:, -1:]).any(1).sum().item()
        self.model.train()
        return hits / len(self.unseen)

    def epoch(self):
        total = torch.zeros(())
        for pages in self.albums.batches(self.batch, self.generator):
            tokens, labels = self.albums.masked(pages, self.share, self.generator)
            loss = self.model(tokens, labels)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.schedule.step()
            total += loss.detach() * len(pages)
        return total.item() / len(self.albums)

    def run(self):
        begun = time.perf_counter()
        for number in range(1, self.epochs + 1):
            loss = self.epoch()
            if number % 6 == 0 or number == self.epochs:
                print(f"epoch {number:2d}  loss {loss:.3f}  hit@5 {self.hit_rate():.3f}", flush=True)
        print(f"training seconds {time.perf_counter() - begun:.2f}")


if __name__ == "__main__":
    Collector().run()
