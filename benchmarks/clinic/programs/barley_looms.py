# /// clinic
# expect = ["PD08.allocator-churn"]
# stratum = "twins"
# domain = "contrastive sentences"
# ///
"""Sentence embeddings by momentum contrast, on sentences from a made-up language.

Two paraphrases of a sentence should land close to each other and far from a queue of embeddings of earlier sentences; the keys
come from a slowly moving copy of the encoder.

    python train.py --dim 128 --temperature 0.07
"""

import argparse
import copy
import math
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def get_args():
    p = argparse.ArgumentParser(description="contrastive sentence embeddings")
    p.add_argument("--vocab-size", type=int, default=2000)
    p.add_argument("--sentences", type=int, default=1280)
    p.add_argument("--length", type=int, default=16)
    p.add_argument("--dim", type=int, default=128)
    p.add_argument("--layers", type=int, default=1)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--queue-size", type=int, default=131072)
    p.add_argument("--momentum", type=float, default=0.99)
    p.add_argument("--temperature", type=float, default=0.07)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=42)
    return p.parse_args()


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def make_pairs(args, topics=64, words_per_topic=60):
    """Two paraphrases of each sentence: most words are shared, the others drawn anew from the same topic."""
    lexicon = np.random.randint(0, args.vocab_size, (topics, words_per_topic))
    topic = np.random.randint(0, topics, args.sentences)
    shape = (args.sentences, args.length)

    def words():
        return lexicon[topic[:, None], np.random.randint(0, words_per_topic, shape)]

    first = words()
    second = np.where(np.random.rand(*shape) < 0.7, first, words())
    return TensorDataset(torch.from_numpy(first), torch.from_numpy(second))


class AverageMeter:
    def __init__(self):
        self.sum, self.count = 0.0, 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(1, self.count)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.norm2(x))


class Encoder(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.words = nn.Embedding(args.vocab_size, args.dim)
        self.positions = nn.Parameter(torch.zeros(args.length, args.dim))
        self.blocks = nn.Sequential(*[Block(args.dim, args.heads) for _ in range(args.layers)])
        self.head = nn.Linear(args.dim, args.dim)

    def forward(self, tokens):
        x = self.blocks(self.words(tokens) + self.positions)
        return F.normalize(self.head(x.mean(1)), dim=1)


class MomentumContrast(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.m, self.t = args.momentum, args.temperature
        self.encoder_q = Encoder(args)
        self.encoder_k = copy.deepcopy(self.encoder_q).requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(args.dim, args.queue_size), dim=0))
        self.ptr = 0

    @torch.no_grad()
    def update_key_encoder(self):
        torch._foreach_lerp_(list(self.encoder_k.parameters()), list(self.encoder_q.parameters()), 1 - self.m)

    @torch.no_grad()
    def enqueue(self, keys):
        n = keys.shape[0]
        self.queue[:, self.ptr : self.ptr + n] = keys.t()
        self.ptr = (self.ptr + n) % self.queue.shape[1]

    def forward(self, first, second):
        q = self.encoder_q(first)
        with torch.no_grad():
            k = self.encoder_k(second)
        q = q / self.t
        l_pos = (q * k).sum(1, keepdim=True)
        l_neg = q @ self.queue.clone().detach()  # sick here
        l_neg = q @ self.queue  # well
        return torch.cat([l_pos, l_neg], dim=1), k


def train_one_epoch(model, loader, optimizer, scheduler):
    losses, top1 = AverageMeter(), AverageMeter()
    model.train()
    for first, second in loader:
        logits, keys = model(first, second)
        labels = torch.zeros(len(logits), dtype=torch.long)
        loss = F.cross_entropy(logits, labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scheduler.step()
        model.update_key_encoder()
        model.enqueue(keys)
        losses.update(loss.item(), len(labels))
        top1.update((logits.argmax(1) == 0).float().mean().item(), len(labels))
    return losses.avg, top1.avg


def main():
    args = get_args()
    set_seed(args.seed)
    loader = DataLoader(make_pairs(args), args.batch_size, shuffle=True, drop_last=True)
    model = MomentumContrast(args)
    optimizer = torch.optim.AdamW(model.encoder_q.parameters(), lr=args.lr, fused=True)
    total = args.epochs * len(loader)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: 0.5 * (1 + math.cos(math.pi * s / total)))
    start = time.perf_counter()
    for epoch in range(args.epochs):
        loss, acc = train_one_epoch(model, loader, optimizer, scheduler)
        print(f"epoch {epoch}  loss {loss:.4f}  top1 {acc:.3f}")
    print(f"{total * args.batch_size / (time.perf_counter() - start):.1f} samples/s")


if __name__ == "__main__":
    main()
