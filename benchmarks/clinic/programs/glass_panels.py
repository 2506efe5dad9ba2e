# /// clinic
# expect = ["PD10.kernels-by-sample"]
# stratum = "twins"
# domain = "stained glass"
# ///
"""Stained-glass panels: an encoder finds the style code of a panel, a style-modulated synthesis network paints it.

The code of a window is later used to look for panels by the same workshop.
"""

import math
import time
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    train_panels: int = 1800
    holdout_panels: int = 96
    size: int = 32
    code: int = 128
    channels: dict = field(default_factory=lambda: {4: 80, 8: 80, 16: 80, 32: 32})
    batch: int = 12
    epochs: int = 2
    lr: float = 1.5e-3
    edge_weight: float = 0.3
    seed: int = 11


PALETTE = np.array(
    [
        [0.62, 0.05, 0.10],
        [0.08, 0.14, 0.55],
        [0.10, 0.42, 0.18],
        [0.86, 0.68, 0.14],
        [0.45, 0.10, 0.42],
        [0.78, 0.82, 0.80],
        [0.90, 0.42, 0.08],
        [0.05, 0.40, 0.48],
    ],
    dtype=np.float32,
)


def make_panels(count, size, rng):
    """Voronoi cells of coloured glass, joined by dark lead cames, with a light gradient as of a low sun."""
    yy, xx = np.mgrid[0:size, 0:size].astype(np.float32) / size
    panels = np.empty((count, 3, size, size), dtype=np.float32)
    for n in range(count):
        pieces = rng.integers(6, 15)
        cy, cx = rng.random((2, pieces, 1, 1), dtype=np.float32)
        dist = np.sqrt((yy - cy) ** 2 + (xx - cx) ** 2)
        two = np.partition(dist, 1, axis=0)[:2]
        tints = PALETTE[rng.integers(0, len(PALETTE), pieces)] + rng.normal(0, 0.03, (pieces, 3)).astype(np.float32)
        glass = tints[dist.argmin(0)].transpose(2, 0, 1)
        lead = ((two[1] - two[0]) < 0.035).astype(np.float32)
        angle = rng.random() * 2 * math.pi
        sun = 0.85 + 0.25 * (math.cos(angle) * xx + math.sin(angle) * yy)
        panels[n] = glass * sun * (1 - lead) + 0.04 * lead
    return torch.from_numpy(panels).clamp_(0, 1).mul_(2).sub_(1)


class Encoder(nn.Module):
    def __init__(self, code):
        super().__init__()
        widths = [3, 32, 48, 64, 96]
        self.body = nn.Sequential(
            *[
                nn.Sequential(nn.Conv2d(a, b, 3, stride=2, padding=1), nn.GroupNorm(8, b), nn.LeakyReLU(0.2))
                for a, b in zip(widths, widths[1:])
            ]
        )
        self.head = nn.Linear(96 * 4, code)

    def forward(self, x):
        return self.head(self.body(x).flatten(1))


class ModulatedConv(nn.Module):
    """3x3 convolution whose input channels are scaled by the style and whose outputs are demodulated."""

    def __init__(self, cin, cout, code):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(cout, cin, 3, 3) / math.sqrt(cin * 9))
        self.bias = nn.Parameter(torch.zeros(cout))
        self.affine = nn.Linear(code, cin)
        self.noise = nn.Parameter(torch.zeros(()))

    def forward(self, x, style):
        b, c, h, w = x.shape
        scale = self.affine(style) + 1
        weight = self.weight[None] * scale.view(b, 1, c, 1, 1)  # sick here
        demod = torch.rsqrt(weight.square().sum((2, 3, 4)) + 1e-8)  # sick
        weight = (weight * demod.view(b, -1, 1, 1, 1)).flatten(0, 1)  # sick here
        out = F.conv2d(x.reshape(1, b * c, h, w), weight, padding=1, groups=b)  # sick here
        out = out.view(b, -1, h, w)  # sick
        demod = torch.rsqrt(scale.square() @ self.weight.square().sum((2, 3)).t() + 1e-8)  # well
        out = F.conv2d(x * scale.view(b, c, 1, 1), self.weight, padding=1)  # well
        out = out * demod.view(b, -1, 1, 1)  # well
        out = out + self.noise * torch.randn(b, 1, h, w) + self.bias.view(1, -1, 1, 1)
        return F.leaky_relu(out, 0.2)


class Synthesis(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        sizes = sorted(cfg.channels)
        self.const = nn.Parameter(torch.randn(1, cfg.channels[sizes[0]], sizes[0], sizes[0]))
        self.mapping = nn.Sequential(nn.Linear(cfg.code, cfg.code), nn.LeakyReLU(0.2), nn.Linear(cfg.code, cfg.code))
        self.first, self.second, self.rgb = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        before = cfg.channels[sizes[0]]
        for size in sizes:
            now = cfg.channels[size]
            self.first.append(ModulatedConv(before, now, cfg.code))
            self.second.append(ModulatedConv(now, now, cfg.code))
            self.rgb.append(nn.Conv2d(now, 3, 1))
            before = now

    def forward(self, code):
        style = self.mapping(code)
        x = self.const.expand(len(code), -1, -1, -1)
        picture = None
        for level, (first, second, rgb) in enumerate(zip(self.first, self.second, self.rgb)):
            if level:
                x = F.interpolate(x, scale_factor=2, mode="nearest")
                picture = F.interpolate(picture, scale_factor=2, mode="bilinear", align_corners=False)
            x = second(first(x, style), style)
            picture = rgb(x) if picture is None else picture + rgb(x)
        return torch.tanh(picture)


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        rng = np.random.default_rng(cfg.seed)
        self.train = make_panels(cfg.train_panels, cfg.size, rng)
        self.holdout = make_panels(cfg.holdout_panels, cfg.size, rng)
        self.encoder, self.synthesis = Encoder(cfg.code), Synthesis(cfg)
        self.params = [*self.encoder.parameters(), *self.synthesis.parameters()]
        self.optimizer = torch.optim.Adam(self.params, lr=cfg.lr, betas=(0.5, 0.99))

    def loss(self, panels):
        painted = self.synthesis(self.encoder(panels))
        edges = sum(F.l1_loss(painted.diff(dim=d), panels.diff(dim=d)) for d in (-1, -2))
        return F.l1_loss(painted, panels) + self.cfg.edge_weight * edges

    @torch.no_grad()
    def psnr(self):
        errors = [F.mse_loss(self.synthesis(self.encoder(p)), p) for p in self.holdout.split(self.cfg.batch)]
        return 10 * math.log10(4 / torch.stack(errors).mean().item())

    def fit(self):
        seen, began = 0, time.perf_counter()
        for epoch in range(self.cfg.epochs):
            total, batches = 0.0, torch.randperm(len(self.train)).split(self.cfg.batch)
            for index in batches:
                loss = self.loss(self.train[index])
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.params, 5.0)
                self.optimizer.step()
                total += loss.item()
                seen += len(index)
            print(f"epoch {epoch}: loss {total / len(batches):.4f}, holdout PSNR {self.psnr():.2f} dB")
        return seen / (time.perf_counter() - began)


if __name__ == "__main__":
    rate = Trainer(Config()).fit()
    print(f"{rate:.1f} panels/s")
