# /// clinic
# expect = ["PD02.attention-math"]
# stratum = "twins"
# domain = "organ pipes: stop and voicing fault from band envelopes"
# ///
"""Recognise the stop (rank of pipes) and the voicing fault of an organ pipe from its band envelopes.

The recordings are simulated: every stop has its own spectrum, attack and wind noise, and a few
pipes cough, hunt or speak late.  A small transformer reads 400 frames of 40 bands.
"""

import argparse
import math
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

STOPS = ["principal", "gedackt", "gamba", "trumpet", "cornet", "vox humana"]
FAULTS = ["none", "cough", "hunting wind", "slow speech"]


@dataclass
class Config:
    frames: int = 400
    bands: int = 40
    width: int = 96
    heads: int = 4
    layers: int = 2
    batch: int = 8
    pipes: int = 240
    epochs: int = 16
    lr: float = 1.5e-3
    seed: int = 11


def simulate_pipes(cfg, count, generator):
    """Log band energies [count, frames, bands], stop labels and fault labels."""
    stop = torch.randint(len(STOPS), (count,), generator=generator)
    fault = torch.randint(len(FAULTS), (count,), generator=generator)
    t = torch.linspace(0, 3, cfg.frames)[None, :, None]
    band = torch.arange(cfg.bands, dtype=torch.float32)[None, None, :]
    s = stop[:, None, None].float()
    pitch = 4 + 8 * torch.rand(count, 1, 1, generator=generator)

    slope = 0.05 + 0.03 * s
    comb = torch.cos(2 * math.pi * band / pitch * torch.where(stop == 1, 0.5, 1.0)[:, None, None])
    spectrum = -slope * band + (0.5 + 0.1 * s) * comb
    onset = 0.25 + 0.2 * torch.rand(count, 1, 1, generator=generator)
    rise = torch.where(fault == 3, 0.35, 0.08)[:, None, None] * (1 + 0.02 * band)
    envelope = torch.sigmoid((t - onset) / rise * 2)

    cough = torch.exp(-(((t - onset) / 0.05) ** 2)) * torch.exp(-(((band - 20) / 5) ** 2))
    hunting = torch.sin(2 * math.pi * (2.2 + pitch / 20) * t) * (t > onset)
    tremor = torch.sin(2 * math.pi * 6 * t) * (stop == 5)[:, None, None]
    level = spectrum * envelope + 1.5 * envelope + 0.15 * tremor
    level = level + 0.9 * cough * (fault == 1)[:, None, None] + 0.18 * hunting * (fault == 2)[:, None, None]
    level = level + 0.6 * torch.randn(level.shape, generator=generator)
    return level, stop, fault


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        b, n, w = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = (z.reshape(b * self.heads, n, -1) for z in (q, k, v))  # sick here
        y = F.scaled_dot_product_attention(q, k, v)  # here
        y = y.view(b, self.heads, n, -1)  # sick
        return self.out(y.transpose(1, 2).reshape(b, n, w))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class PipeListener(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Linear(cfg.bands, cfg.width)
        self.position = nn.Parameter(0.02 * torch.randn(1, cfg.frames, cfg.width))
        self.blocks = nn.ModuleList(Block(cfg.width, cfg.heads) for _ in range(cfg.layers))
        self.norm = nn.LayerNorm(cfg.width)
        self.stop_head = nn.Linear(cfg.width, len(STOPS))
        self.fault_head = nn.Linear(cfg.width, len(FAULTS))

    def forward(self, x):
        x = self.embed(x) + self.position
        for block in self.blocks:
            x = block(x)
        x = self.norm(x).mean(dim=1)
        return self.stop_head(x), self.fault_head(x)


class Workshop:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        self.generator = torch.Generator().manual_seed(cfg.seed)
        self.train_set = simulate_pipes(cfg, cfg.pipes, self.generator)
        self.held_out = simulate_pipes(cfg, 32, self.generator)
        self.model = PipeListener(cfg)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr, weight_decay=0.02, fused=True)
        steps = cfg.epochs * (cfg.pipes // cfg.batch)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, cfg.lr, total_steps=steps)

    def epoch(self):
        self.model.train()
        order = torch.randperm(self.cfg.pipes, generator=self.generator)
        total = torch.zeros(())
        for index in order.split(self.cfg.batch):
            level, stop, fault = (part[index] for part in self.train_set)
            stop_logits, fault_logits = self.model(level)
            loss = F.cross_entropy(stop_logits, stop) + F.cross_entropy(fault_logits, fault)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            total += loss.detach() * len(index)
        return total.item() / self.cfg.pipes

    @torch.no_grad()
    def accuracy(self):
        self.model.eval()
        level, stop, fault = self.held_out
        outputs = [self.model(part) for part in level.split(self.cfg.batch)]
        stop_logits, fault_logits = (torch.cat(parts) for parts in zip(*outputs))
        hit = lambda logits, target: (logits.argmax(1) == target).float().mean().item()
        return hit(stop_logits, stop), hit(fault_logits, fault)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=Config.epochs)
    parser.add_argument("--lr", type=float, default=Config.lr)
    args = parser.parse_args()
    workshop = Workshop(Config(epochs=args.epochs, lr=args.lr))
    start = time.perf_counter()
    for epoch in range(args.epochs):
        tick = time.perf_counter()
        loss = workshop.epoch()
        stops, faults = workshop.accuracy()
        seconds = time.perf_counter() - tick
        print(f"epoch {epoch:2d}  loss {loss:.3f}  stops {stops:.2f}  faults {faults:.2f}  {seconds:.2f} s", flush=True)
    print(f"training took {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
