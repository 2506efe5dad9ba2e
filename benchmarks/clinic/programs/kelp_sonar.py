# /// clinic
# expect = ["PD10.rebuilt-by-cat"]
# stratum = "twins"
# domain = "kelp forest sonar"
# ///
#!/usr/bin/env python
"""Contrastive pre-training on echoes of a side-scan sonar over a kelp forest (momentum encoder and a bank of keys).

Two crops of the same echo are a positive pair; the negatives are drawn from a bank of keys of earlier batches.
"""

import argparse
import copy
import time

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--echoes", type=int, default=6400)
    parser.add_argument("--samples", type=int, default=320, help="samples in one echo")
    parser.add_argument("--crop", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--bank", type=int, default=98304, help="number of keys kept as negatives")
    parser.add_argument("--negatives", type=int, default=2048)
    parser.add_argument("--temperature", type=float, default=0.1)
    parser.add_argument("--momentum", type=float, default=0.99)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=17)
    return parser.parse_args()


def make_echoes(count, samples, rng):
    """Sea floor return, fronds between surface and floor, gas bladders as sharp scatterers; port and starboard."""
    t = np.linspace(0, 1, samples, dtype=np.float32)
    floor = rng.uniform(0.6, 0.9, (count, 1, 1)).astype(np.float32)
    echo = np.exp(-(((t - floor) / 0.02) ** 2)) * np.ones((1, 2, 1), dtype=np.float32)
    for _ in range(6):
        depth = rng.uniform(0.1, 0.8, (count, 2, 1)).astype(np.float32) * floor
        size = rng.exponential(0.4, (count, 2, 1)).astype(np.float32)
        echo += size * np.exp(-(((t - depth) / 0.008) ** 2))
    echo += 0.1 * rng.standard_normal(echo.shape, dtype=np.float32)
    canopy = (floor[:, 0, 0] > 0.75).astype(np.int64)
    return torch.from_numpy(echo.astype(np.float32)), torch.from_numpy(canopy)


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv1d(inputs, outputs, 5, stride=stride, padding=2, bias=False)
        self.norm1 = nn.BatchNorm1d(outputs)
        self.conv2 = nn.Conv1d(outputs, outputs, 5, padding=2, bias=False)
        self.norm2 = nn.BatchNorm1d(outputs)
        self.skip = nn.Conv1d(inputs, outputs, 1, stride=stride, bias=False)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.skip(x))


class EchoEncoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.trunk = nn.Sequential(Block(2, 32, 2), Block(32, 64, 2), Block(64, 96, 2))
        self.project = nn.Sequential(nn.Linear(96, 192), nn.ReLU(), nn.Linear(192, dim))

    def forward(self, x):
        return F.normalize(self.project(self.trunk(x).mean(dim=-1)), dim=-1)


class KeyBank:
    """First-in first-out memory of unit keys."""

    def __init__(self, size, dim):
        self.size = size
        self.keys = F.normalize(torch.randn(size, dim), dim=-1)
        self.next = 0

    def add(self, keys):
        self.keys = torch.cat([keys, self.keys])[: self.size]  # sick here
        places = (self.next + torch.arange(len(keys))) % self.size  # well
        self.keys[places] = keys  # well
        self.next = (self.next + len(keys)) % self.size

    def draw(self, count):
        return self.keys[torch.randint(0, self.size, (count,))]


def augment(echo, crop):
    start = int(torch.randint(0, echo.shape[-1] - crop + 1, (1,)))
    gain = 1 + 0.2 * torch.randn(len(echo), 1, 1)
    view = echo[..., start : start + crop] * gain
    return view + 0.05 * torch.randn_like(view)


@torch.no_grad()
def follow(slow, fast, momentum):
    for a, b in zip(slow.parameters(), fast.parameters()):
        a.lerp_(b, 1 - momentum)


@torch.no_grad()
def probe(encoder, echoes, canopy, crop):
    """Accuracy of the nearest class mean: canopy over deep or over shallow floor."""
    encoder.eval()
    z = torch.cat([encoder(part[..., :crop]) for part in echoes.split(256)])
    half = len(z) // 2
    means = torch.stack([z[:half][canopy[:half] == c].mean(0) for c in (0, 1)])
    hit = (z[half:] @ means.T).argmax(-1) == canopy[half:]
    encoder.train()
    return hit.float().mean().item()


def main():
    args = parse_args()
    set_seed(args.seed)
    accelerator = Accelerator(cpu=True)
    echoes, canopy = make_echoes(args.echoes + 512, args.samples, np.random.default_rng(args.seed))
    loader = DataLoader(TensorDataset(echoes[512:]), batch_size=args.batch_size, shuffle=True, drop_last=True)

    encoder = EchoEncoder(args.dim)
    teacher = copy.deepcopy(encoder).requires_grad_(False)
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=args.lr, weight_decay=1e-4)
    encoder, optimizer, loader = accelerator.prepare(encoder, optimizer, loader)
    bank = KeyBank(args.bank, args.dim)
    accelerator.print(f"{args.epochs} epochs of {len(loader)} batches, bank of {args.bank} keys")

    done = 0
    began = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for (echo,) in loader:
            query = encoder(augment(echo, args.crop))
            with torch.no_grad():
                key = teacher(augment(echo, args.crop))
            positive = (query * key).sum(-1, keepdim=True)
            negative = query @ bank.draw(args.negatives).T
            logits = torch.cat([positive, negative], dim=1) / args.temperature
            loss = F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long))
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(encoder.parameters(), 5.0)
            optimizer.step()
            optimizer.zero_grad()
            follow(teacher, accelerator.unwrap_model(encoder), args.momentum)
            bank.add(key)
            total += loss.detach()
            done += len(echo)
        hit = probe(teacher, echoes[:512], canopy[:512], args.crop)
        accelerator.print(f"epoch {epoch}: loss {float(total) / len(loader):.4f}, probe {hit:.3f}")
    rate = done / (time.perf_counter() - began)

    print(f"{rate:.1f} echoes/s")


if __name__ == "__main__":
    main()
