# /// clinic
# expect = ["PD07.float64"]
# stratum = "twins"
# domain = "seismology"
# ///
"""Transformer phase picker: P and S onset probabilities from three-component waveforms."""

import math
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from scipy.signal import butter, sosfiltfilt
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


@dataclass
class Config:
    sampling_rate: float = 100.0
    window: int = 2400
    patch: int = 40
    events: int = 1200
    held_out: int = 120
    width: int = 128
    depth: int = 4
    heads: int = 4
    batch: int = 16
    epochs: int = 6
    lr: float = 5e-4
    seed: int = 11


def synth_events(cfg, rng):
    """Noise plus a P wavelet on Z and an S wavelet on the horizontals."""
    n, t = cfg.events, np.arange(cfg.window, dtype=np.float32) / cfg.sampling_rate
    p_time = rng.uniform(3.0, 10.0, n).astype(np.float32)
    s_time = p_time + rng.uniform(1.5, 9.0, n).astype(np.float32)
    freq = rng.uniform(4.0, 12.0, (n, 1)).astype(np.float32)
    traces = rng.standard_normal((n, 3, cfg.window), dtype=np.float32)

    def wavelet(onset, amplitude, decay):
        dt = np.clip(t[None] - onset[:, None], 0, None)
        return amplitude * np.sin(2 * math.pi * freq * dt) * np.exp(-dt / decay)

    p = wavelet(p_time, 4.0, 1.2)
    s = wavelet(s_time, 7.0, 2.5)
    traces[:, 0] += p + 0.3 * s
    traces[:, 1] += 0.4 * p + s
    traces[:, 2] += 0.4 * p + 0.8 * s
    return traces, p_time, s_time


def preprocess(traces, cfg):
    """Bandpass 1-20 Hz without phase shift, then unit variance per trace."""
    sos = butter(4, [1.0, 20.0], btype="bandpass", fs=cfg.sampling_rate, output="sos")
    filtered = sosfiltfilt(sos, traces, axis=-1)
    filtered -= filtered.mean(axis=-1, keepdims=True)
    filtered /= filtered.std(axis=-1, keepdims=True) + 1e-8
    return torch.from_numpy(filtered.copy())  # sick here
    return torch.from_numpy(filtered.astype(np.float32))  # well


def onset_targets(p_time, s_time, cfg, sigma=0.1):
    """Gaussian bumps at the picks; the third channel is noise."""
    t = torch.arange(cfg.window) / cfg.sampling_rate
    p = torch.exp(-((t - torch.from_numpy(p_time)[:, None]) ** 2) / (2 * sigma**2))
    s = torch.exp(-((t - torch.from_numpy(s_time)[:, None]) ** 2) / (2 * sigma**2))
    noise = (1 - p - s).clamp_min(0)
    return torch.stack([p, s, noise], dim=1)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(attended.transpose(1, 2).reshape(b, n, d))
        return x + self.mlp(self.norm2(x))


class PhaseTransformer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.patch = cfg.patch
        self.embed = nn.Linear(3 * cfg.patch, cfg.width)
        self.position = nn.Parameter(0.02 * torch.randn(cfg.window // cfg.patch, cfg.width))
        self.blocks = nn.Sequential(*[Block(cfg.width, cfg.heads) for _ in range(cfg.depth)])
        self.norm = nn.LayerNorm(cfg.width)
        self.head = nn.Linear(cfg.width, 3 * cfg.patch)

    def forward(self, waves):
        b, c, n = waves.shape
        patches = waves.view(b, c, n // self.patch, self.patch).transpose(1, 2).flatten(2)
        hidden = self.norm(self.blocks(self.embed(patches) + self.position))
        return self.head(hidden).view(b, n // self.patch, 3, self.patch).transpose(1, 2).reshape(b, 3, n)


def picking_loss(logits, target):
    return -(target * F.log_softmax(logits, dim=1)).sum(1).mean()


@torch.no_grad()
def mean_pick_error(model, waves, p_time, cfg):
    model.eval()
    picked = torch.cat([model(w).softmax(1)[:, 0].argmax(-1) for w in waves.split(60)])
    model.train()
    return (picked / cfg.sampling_rate - p_time).abs().mean().item()


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    traces, p_time, s_time = synth_events(cfg, rng)
    waves = preprocess(traces, cfg)
    targets = onset_targets(p_time, s_time, cfg).to(waves.dtype)
    held = cfg.held_out
    train_set = TensorDataset(waves[held:], targets[held:])
    sampler = BatchSampler(RandomSampler(train_set), cfg.batch, drop_last=True)
    loader = DataLoader(train_set, sampler=sampler, batch_size=None)

    model = PhaseTransformer(cfg).to(waves.dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.01, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, cfg.lr, total_steps=cfg.epochs * len(loader))

    step, start = 0, None
    for epoch in range(cfg.epochs):
        for batch_waves, batch_targets in loader:
            loss = picking_loss(model(batch_waves), batch_targets)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            step += 1
            if step == 5:
                start = time.perf_counter()
        error = mean_pick_error(model, waves[:held], torch.from_numpy(p_time[:held]), cfg)
        print(f"epoch {epoch}: loss {loss.item():.4f}, P pick error {error:.2f} s")
    print(f"{(step - 5) / (time.perf_counter() - start):.2f} steps/s")


if __name__ == "__main__":
    main()
