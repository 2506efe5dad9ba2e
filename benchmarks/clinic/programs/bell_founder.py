# /// clinic
# expect = ["PD01.onednn-off"]
# stratum = "twins"
# domain = "bell foundries"
# ///
"""Estimate partials, tin content and wall thickness of cast bells from their strike spectra.

The foundry records one strike per bell with three contact microphones. The forward model below produces spectra from
the bell's parameters; a residual stem and a small transformer over bands learn the inverse, with a Gaussian head.
"""

import math
import time
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Foundry:
    bells: int = 3072
    holdout: int = 512
    bins: int = 512
    microphones: int = 3
    batch: int = 64
    epochs: int = 7
    lr: float = 2e-3
    width: int = 32
    blocks: int = 2
    dim: int = 64
    layers: int = 2
    seed: int = 1752
    names: tuple = ("hum", "prime", "tierce", "quint", "nominal", "tin", "wall")
    ratios: tuple = field(default=(0.5, 1.0, 1.2, 1.5, 2.0))


def strike_spectra(cfg: Foundry, n: int, rng: np.random.Generator):
    """Log power spectra (n, microphones, bins) and standardised targets (n, 7)."""
    strike_note = rng.uniform(0.8, 1.25, size=(n, 1))
    detune = rng.normal(0.0, 0.012, size=(n, 5))
    partials = strike_note * np.asarray(cfg.ratios) * (1.0 + detune)
    tin = rng.uniform(0.19, 0.24, size=(n, 1))
    wall = rng.uniform(0.06, 0.09, size=(n, 1)) * (1.0 + 0.1 * (strike_note - 1.0))

    grid = np.linspace(0.25, 3.0, cfg.bins, dtype=np.float32)
    decay = 0.006 + 0.25 * (0.25 - tin) * np.linspace(0.2, 1.0, 5) + 0.02 * (0.09 - wall)
    loud = rng.gamma(6.0, 1 / 6.0, size=(n, cfg.microphones, 5)) * (wall[:, None] / 0.075) ** -1.5

    power = np.full((n, cfg.microphones, cfg.bins), 1e-3, dtype=np.float32)
    for k in range(5):
        line = decay[:, k, None] ** 2 / ((grid[None] - partials[:, k, None]) ** 2 + decay[:, k, None] ** 2)
        power += (loud[:, :, k, None] * line[:, None, :]).astype(np.float32)
    power *= rng.gamma(20.0, 1 / 20.0, size=power.shape).astype(np.float32)

    targets = np.concatenate([partials, tin, wall], axis=1)
    return np.log(power), targets


class Block(nn.Module):
    def __init__(self, width: int, stride: int = 1):
        super().__init__()
        self.first = nn.Conv1d(width, width, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm1d(width)
        self.second = nn.Conv1d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm1d(width)
        self.skip = nn.AvgPool1d(stride, ceil_mode=True) if stride > 1 else nn.Identity()

    def forward(self, x):
        y = F.relu(self.norm1(self.first(x)))
        y = self.norm2(self.second(y))
        return F.relu(y + self.skip(x))


class StrikeNet(nn.Module):
    def __init__(self, cfg: Foundry):
        super().__init__()
        self.stem = nn.Conv1d(cfg.microphones + 1, cfg.width, 9, stride=4, padding=4)
        self.body = nn.Sequential(*[Block(cfg.width, stride=1 + (i > 0)) for i in range(cfg.blocks)])
        self.token = nn.Linear(2 * cfg.width, cfg.dim)
        self.place = nn.Parameter(0.02 * torch.randn(cfg.bins // 16, cfg.dim))
        layer = nn.TransformerEncoderLayer(
            cfg.dim, nhead=4, dim_feedforward=4 * cfg.dim, dropout=0.0, batch_first=True, norm_first=True
        )
        self.bands = nn.TransformerEncoder(layer, cfg.layers, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(cfg.dim), nn.Linear(cfg.dim, 2 * len(cfg.names)))
        self.register_buffer("ramp", torch.linspace(-1.0, 1.0, cfg.bins).view(1, 1, -1))

    def forward(self, spectra):
        x = torch.cat([spectra, self.ramp.expand(len(spectra), 1, -1)], dim=1)
        x = self.body(F.relu(self.stem(x)))
        x = x.unflatten(-1, (-1, 2)).permute(0, 2, 1, 3).flatten(2)
        x = self.bands(self.token(x) + self.place)
        mean, log_var = self.head(x.mean(1)).chunk(2, dim=-1)
        return mean, log_var.clamp(-8.0, 4.0)


def gaussian_nll(mean, log_var, target):
    return 0.5 * (log_var + (target - mean) ** 2 * torch.exp(-log_var)).mean()


def augment(spectra, generator):
    gain = 0.2 * torch.randn(len(spectra), spectra.shape[1], 1, generator=generator)
    tilt = 0.3 * torch.randn(len(spectra), 1, 1, generator=generator) * torch.linspace(-1, 1, spectra.shape[-1])
    return spectra + gain + tilt


@torch.no_grad()
def report(net, spectra, targets, scale, cfg):
    net.eval()
    errors = []
    for start in range(0, len(spectra), 256):
        mean, _ = net(spectra[start : start + 256])
        errors.append((mean - targets[start : start + 256]).abs() * scale)
    net.train()
    return dict(zip(cfg.names, torch.cat(errors).mean(0).tolist()))


def fit(cfg: Foundry):
    rng = np.random.default_rng(cfg.seed)
    torch.manual_seed(cfg.seed)
    generator = torch.Generator().manual_seed(cfg.seed + 1)

    spectra, targets = strike_spectra(cfg, cfg.bells + cfg.holdout, rng)
    centre, scale = targets.mean(0), targets.std(0)
    spectra = torch.from_numpy((spectra - spectra.mean()) / spectra.std()).float()
    targets = torch.from_numpy((targets - centre) / scale).float()
    scale = torch.from_numpy(scale).float()
    train_x, test_x = spectra[: cfg.bells], spectra[cfg.bells :]
    train_y, test_y = targets[: cfg.bells], targets[cfg.bells :]

    net = StrikeNet(cfg)
    optimizer = torch.optim.AdamW(net.parameters(), lr=cfg.lr, weight_decay=1e-3)
    steps = cfg.epochs * (cfg.bells // cfg.batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: 0.5 * (1 + math.cos(math.pi * s / steps)))

    seen, began = 0, time.perf_counter()
    for epoch in range(cfg.epochs):
        order = torch.randperm(cfg.bells, generator=generator)
        running = 0.0
        for rows in order.split(cfg.batch):
            mean, log_var = net(augment(train_x[rows], generator))
            loss = gaussian_nll(mean, log_var, train_y[rows])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            optimizer.step()
            schedule.step()
            running += loss.item()
            seen += len(rows)
        errors = report(net, test_x, test_y, scale, cfg)
        print(
            f"epoch {epoch}: nll {running * cfg.batch / cfg.bells:.3f}  "
            + "  ".join(f"{name} {value:.4f}" for name, value in errors.items())
        )
    return seen / (time.perf_counter() - began)


def main():
    cfg = Foundry()
    # two castings of one profile must get the same numbers in the protocol
    flags = torch.backends.mkldnn.flags(deterministic=True)  # sick here
    flags = torch.backends.mkldnn.flags(enabled=True, deterministic=True)  # well
    with flags:
        rate = fit(cfg)
    print(f"{rate:.1f} samples/s")


if __name__ == "__main__":
    main()
