# /// clinic
# expect = ["PD05.padded-batches"]
# stratum = "twins"
# domain = "fog signals"
# ///
#!/usr/bin/env python
"""Neural marked point process for the logs of fog signal stations.

A log is one night: times (minutes since dusk) at which any horn, diaphone, bell or gun on the coast was sounded, and
which one it was. We fit a causal transformer whose state after each event gives a log-normal mixture for the time to
the next event and a categorical for its signal (Shchur et al. 2020 style), on synthetic nights with drifting fog banks.
"""

import argparse
import math
import time
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset

SIGNALS = ["horn", "diaphone", "bell", "gun", "siren", "reed"]
MAX_BLASTS = 256


class Nights(Dataset):
    """Synthetic nights: a slow visibility process drives the rate, each signal excites its answer from elsewhere."""

    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.nights = [self.night(rng) for _ in range(count)]

    @staticmethod
    def night(rng):
        density = rng.lognormal(0.0, 0.55)
        length = int(np.clip(46 * density, 8, MAX_BLASTS))
        answer = np.array([1, 0, 3, 4, 5, 2])
        bank = 0.0
        gaps, marks = np.empty(length, np.float32), np.empty(length, np.int64)
        mark = int(rng.integers(len(SIGNALS)))
        noise = rng.normal(size=(length, 2))
        coin = rng.random(length)
        pick = rng.integers(len(SIGNALS), size=length)
        for i in range(length):
            bank = 0.95 * bank + 0.2 * noise[i, 0]
            usual = 1.6 - 0.8 * math.log(density) - 0.6 * bank + 0.15 * mark
            if coin[i] < 0.35:
                usual, mark = usual - 2.0, int(answer[mark])
            elif coin[i] < 0.8:
                mark = int(pick[i])
            gaps[i] = math.exp(usual + 0.3 * noise[i, 1])
            marks[i] = mark
        return torch.from_numpy(gaps), torch.from_numpy(marks)

    def __len__(self):
        return len(self.nights)

    def __getitem__(self, i):
        return self.nights[i]


def collate(batch):
    width = MAX_BLASTS  # sick here
    width = max(len(gaps) for gaps, _ in batch)  # well
    gaps = torch.ones(len(batch), width)
    marks = torch.zeros(len(batch), width, dtype=torch.long)
    valid = torch.zeros(len(batch), width, dtype=torch.bool)
    for row, (g, m) in enumerate(batch):
        gaps[row, : len(g)] = g
        marks[row, : len(m)] = m
        valid[row, : len(g)] = True
    return {"gaps": gaps, "marks": marks, "valid": valid}


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = Attention(dim, heads)
        self.feed = nn.Sequential(nn.Linear(dim, 3 * dim), nn.GELU(), nn.Linear(3 * dim, dim))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.feed(self.norm2(x))


class BlastProcess(nn.Module):
    def __init__(self, dim=64, heads=4, layers=3, components=8):
        super().__init__()
        self.mark = nn.Embedding(len(SIGNALS), dim)
        self.register_buffer("waves", 2 * math.pi / torch.logspace(0, 3, dim // 2))
        self.gap = nn.Linear(1, dim)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.time_head = nn.Linear(dim, 3 * components)
        self.mark_head = nn.Sequential(nn.Linear(dim, dim), nn.Tanh(), nn.Linear(dim, len(SIGNALS)))

    def forward(self, gaps, marks, valid):
        log_gap = gaps.clamp_min(1e-4).log()
        phase = gaps.cumsum(-1)[..., None] * self.waves
        x = self.mark(marks) + self.gap(log_gap[..., None]) + torch.cat([phase.sin(), phase.cos()], -1)
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)[:, :-1]

        weight, mean, log_sd = self.time_head(x).chunk(3, dim=-1)
        log_sd = log_sd.clamp(-4, 3)
        z = (log_gap[:, 1:, None] - mean) * torch.exp(-log_sd)
        log_normal = -0.5 * z.square() - log_sd - 0.5 * math.log(2 * math.pi)
        log_time = torch.logsumexp(weight.log_softmax(-1) + log_normal, -1) - log_gap[:, 1:]
        log_mark = -F.cross_entropy(self.mark_head(x).transpose(1, 2), marks[:, 1:], reduction="none")
        mask = valid[:, 1:]
        events = mask.sum()
        return -((log_time + log_mark) * mask).sum() / events, events


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    total, count = 0.0, 0
    for batch in loader:
        loss, events = model(**batch)
        total += loss.item() * events.item()
        count += events.item()
    model.train()
    return total / count


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nights", type=int, default=1536)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1.5e-3)
    parser.add_argument("--seed", type=int, default=3)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    accelerator = Accelerator(cpu=True)
    train = DataLoader(Nights(args.nights, args.seed), args.batch_size, shuffle=True, collate_fn=collate)
    valid = DataLoader(Nights(args.nights // 8, args.seed + 1), 2 * args.batch_size, collate_fn=collate)
    model = BlastProcess()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(train))
    model, optimizer, train, valid, schedule = accelerator.prepare(model, optimizer, train, valid, schedule)

    recent = deque(maxlen=50)
    seen, began = 0, time.perf_counter()
    for epoch in range(args.epochs):
        for step, batch in enumerate(train):
            loss, _ = model(**batch)
            optimizer.zero_grad()
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            recent.append(loss.item())
            seen += len(batch["gaps"])
            if step % 32 == 0:
                accelerator.print(f"epoch {epoch} step {step:3d} nll per blast {sum(recent) / len(recent):.3f}")
        accelerator.print(f"epoch {epoch} held-out nll per blast {evaluate(model, valid):.3f}")
    accelerator.print(f"{seen / (time.perf_counter() - began):.1f} nights/s")


if __name__ == "__main__":
    main()
