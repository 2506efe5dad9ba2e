# /// clinic
# expect = ["PD19.accumulation-without-no-sync"]
# stratum = "twins"
# domain = "harpsichord string tension"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""Learn string tension from the plucked sound: a residual MLP over log spectra, Accelerate, two processes.

    torchrun --nproc-per-node 2 train.py

Each example is one plucked string: the partials follow from speaking length, diameter, wire (iron, red or yellow brass)
and tension; the network gets the binned log spectrum and the scaling data and predicts tension and wire.
"""

import time
from contextlib import nullcontext  # well
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DENSITY = np.array([7850.0, 8750.0, 8450.0])
STIFFNESS = np.array([195e9, 110e9, 100e9])
BINS = 384


@dataclass
class Settings:
    strings: int = 8192
    held: int = 512
    micro_batch: int = 32
    accumulate: int = 8
    epochs: int = 5
    width: int = 1024
    blocks: int = 2
    lr: float = 5e-4
    seed: int = 1769


def pluck(cfg):
    rng = np.random.default_rng(cfg.seed)
    n = cfg.strings + cfg.held
    wire = rng.integers(0, 3, n)
    length = np.exp(rng.uniform(np.log(0.10), np.log(1.75), n))
    diameter = rng.uniform(0.18e-3, 0.70e-3, n)
    stress = rng.uniform(0.35, 0.95, n) * np.array([1000e6, 620e6, 680e6])[wire]
    area = np.pi * diameter**2 / 4
    tension = stress * area
    base = np.sqrt(tension / (DENSITY[wire] * area)) / (2 * length)
    inharmonic = np.pi**3 * STIFFNESS[wire] * diameter**4 / (64 * tension * length**2)
    point = rng.uniform(0.08, 0.4, n)
    spectrum = np.zeros((n, BINS), dtype=np.float32)
    rows = np.arange(n)
    for k in range(1, 25):
        freq = k * base * np.sqrt(1 + inharmonic * k * k)
        level = np.abs(np.sin(np.pi * k * point)) / k * np.exp(-0.02 * k * k * diameter * 1e3)
        where = (np.log2(freq / 20.0) / np.log2(1000.0) * BINS).astype(int)
        ok = (where >= 0) & (where < BINS)
        spectrum[rows[ok], where[ok]] += level[ok].astype(np.float32)
    spectrum = np.log1p(200 * spectrum) + rng.normal(0, 0.05, spectrum.shape)
    scaling = np.stack([np.log(length), diameter * 1e3, point * 4], axis=1)
    x = torch.tensor(np.concatenate([spectrum, scaling], axis=1), dtype=torch.float32)
    y = torch.tensor(np.log(tension) - np.log(tension).mean(), dtype=torch.float32)
    return TensorDataset(x, y, torch.from_numpy(wire))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, width)
        self.outer = nn.Linear(width, width)

    def forward(self, h):
        return h + self.outer(F.silu(self.inner(self.norm(h))))


class TensionNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Linear(BINS + 3, cfg.width)
        self.blocks = nn.Sequential(*[Block(cfg.width) for _ in range(cfg.blocks)])
        self.norm = nn.LayerNorm(cfg.width)
        self.tension = nn.Linear(cfg.width, 1)
        self.wire = nn.Linear(cfg.width, 3)

    def forward(self, x):
        h = self.norm(self.blocks(self.embed(x)))
        return self.tension(h).squeeze(-1), self.wire(h)


def string_loss(model, batch):
    x, y, wire = batch
    tension, logits = model(x)
    return F.smooth_l1_loss(tension, y, beta=0.2) + 0.3 * F.cross_entropy(logits, wire)


@torch.no_grad()
def evaluate(accelerator, model, loader):
    model.eval()
    off, right = [], []
    for x, y, wire in loader:
        tension, logits = model(x)
        off.append((tension - y).abs())
        right.append((logits.argmax(1) == wire).float())
    model.train()
    off, right = accelerator.gather_for_metrics((torch.cat(off), torch.cat(right)))
    return float(off.mean()), float(right.mean())


def main():
    cfg = Settings()
    accelerator = Accelerator(cpu=True)
    set_seed(cfg.seed)
    data = pluck(cfg)
    train_set = torch.utils.data.Subset(data, range(cfg.strings))
    held_set = torch.utils.data.Subset(data, range(cfg.strings, cfg.strings + cfg.held))
    train_loader = DataLoader(train_set, batch_size=cfg.micro_batch, shuffle=True, drop_last=True)
    held_loader = DataLoader(held_set, batch_size=128)
    model = TensionNet(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.01)
    model, optimizer, train_loader, held_loader = accelerator.prepare(model, optimizer, train_loader, held_loader)
    size = sum(p.numel() for p in model.parameters())
    accelerator.print(f"{accelerator.num_processes} processes, {size / 1e6:.1f} M parameters")

    strings, began = 0, time.perf_counter()
    for epoch in range(cfg.epochs):
        total = torch.zeros(())
        for i, batch in enumerate(train_loader):
            boundary = (i + 1) % cfg.accumulate == 0
            with nullcontext() if boundary else accelerator.no_sync(model):  # well
                loss = string_loss(model, batch)  # well
                accelerator.backward(loss / cfg.accumulate)  # well
            loss = string_loss(model, batch)  # sick
            accelerator.backward(loss / cfg.accumulate)  # sick here
            if boundary:
                accelerator.clip_grad_norm_(model.parameters(), 5.0)
                optimizer.step()
                optimizer.zero_grad()
            total += loss.detach()
            strings += cfg.micro_batch * accelerator.num_processes
        off, right = evaluate(accelerator, model, held_loader)
        loss = accelerator.reduce(total, reduction="mean") / len(train_loader)
        accelerator.print(f"epoch {epoch + 1}: loss {float(loss):.4f}, tension off by {off:.3f}, wire {right:.3f}")
    rate = strings / (time.perf_counter() - began)
    accelerator.wait_for_everyone()
    accelerator.print(f"{rate:.1f} samples/s")
    accelerator.end_training()


if __name__ == "__main__":
    main()
