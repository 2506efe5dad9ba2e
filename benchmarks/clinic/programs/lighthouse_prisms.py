# /// clinic
# expect = ["PD10.repeated-rows"]
# stratum = "twins"
# domain = "lighthouse lens prisms"
# ///
"""Surrogate for rays through the catadioptric panels of a lighthouse lens.

A panel is a stack of prism rings; the model reads the stack and predicts, for rays from the lamp at given elevation
and wavelength, the exit elevation and the transmitted fraction.
"""

import time
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


@dataclass
class LensConfig:
    panels: int = 4_320
    held_out: int = 384
    rings: int = 12
    rays: int = 6
    batch_panels: int = 96
    epochs: int = 10
    width: int = 32
    layers: int = 2
    hidden: int = 320
    lr: float = 1.5e-3
    seed: int = 1822


def crown_index(wavelength):
    """Cauchy dispersion of crown glass, wavelength in micrometres."""
    return 1.5046 + 0.0042 / wavelength**2


def grind(n: int, cfg: LensConfig):
    """Random panels: (n, rings, 6) with height, apex angle, facet tilt, radius, greenness, chips."""
    height = torch.linspace(-0.9, 0.9, cfg.rings).expand(n, -1) + 0.02 * torch.randn(n, cfg.rings)
    ideal = torch.atan(height) / 0.52
    apex = ideal + 0.05 * torch.randn(n, cfg.rings)
    tilt = 0.04 * torch.randn(n, cfg.rings)
    radius = 1 + 0.1 * torch.randn(n, 1).expand(-1, cfg.rings)
    green = torch.rand(n, 1).expand(-1, cfg.rings) * 0.3
    chips = (torch.rand(n, cfg.rings) < 0.08).float()
    return torch.stack([height, apex, tilt, radius, green, chips], -1)


def trace(panels, elevation, wavelength):
    """Refraction at the ring that the ray meets; returns exit elevation and transmittance."""
    height, apex, tilt, radius, green, chips = panels.unbind(-1)
    meets = elevation.tan()[..., None] * radius[:, :1, None]
    ring = (height[:, None] - meets).abs().argmin(-1)

    def at(v):
        return v.gather(1, ring)

    n = crown_index(wavelength)
    first = torch.asin(((elevation - at(tilt)).sin() / n).clamp(-1, 1))
    second = torch.asin((n * (first - at(apex)).sin()).clamp(-0.98, 0.98))
    leaves = second + at(tilt)
    fresnel = 1 - 0.043 * (1 + 3 * (elevation - at(tilt)).abs() ** 3)
    absorbed = (-at(green) * (0.4 + (wavelength - 0.52).abs()) * 2).exp()
    return torch.stack([leaves, fresnel * absorbed * (1 - 0.6 * at(chips))], -1)


class RayTable(Dataset):
    def __init__(self, n: int, cfg: LensConfig):
        self.panels = grind(n, cfg)
        elevation = (torch.rand(n, cfg.rays) - 0.5) * 1.4
        wavelength = 0.42 + 0.26 * torch.rand(n, cfg.rays)
        self.rays = torch.stack([elevation, wavelength], -1)
        self.exits = trace(self.panels, elevation, wavelength)

    def __len__(self):
        return len(self.panels)

    def __getitem__(self, i):
        return self.panels[i], self.rays[i], self.exits[i]


class PanelReader(nn.Module):
    """Transformer over the prism rings of a panel."""

    def __init__(self, cfg: LensConfig):
        super().__init__()
        self.lift = nn.Linear(6, cfg.width)
        self.place = nn.Parameter(torch.randn(cfg.rings, cfg.width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            cfg.width, 4, cfg.width * 2, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, cfg.layers, enable_nested_tensor=False)
        self.out = nn.Linear(cfg.rings * cfg.width, cfg.width * 2)

    def forward(self, panels):
        return self.out(self.blocks(self.lift(panels) + self.place).flatten(1))


class LensSurrogate(nn.Module):
    def __init__(self, cfg: LensConfig):
        super().__init__()
        self.reader = PanelReader(cfg)
        self.register_buffer("bands", 2.0 ** torch.arange(5))
        inputs = cfg.width * 2 + 2 * (1 + 2 * 5)
        self.enter = nn.Linear(inputs, cfg.hidden)
        self.deep = nn.ModuleList(nn.Linear(cfg.hidden, cfg.hidden) for _ in range(3))
        self.leave = nn.Linear(cfg.hidden, 2)

    def waves(self, rays):
        phase = (rays[..., None] * self.bands).flatten(-2)
        return torch.cat([rays, phase.sin(), phase.cos()], -1)

    def forward(self, panels, rays):
        b, r, _ = rays.shape
        panels = panels.repeat_interleave(r, 0)  # sick here
        code = self.reader(panels)  # here
        code = code.repeat_interleave(r, 0)  # well
        h = F.silu(self.enter(torch.cat([code, self.waves(rays.reshape(b * r, -1))], -1)))
        for layer in self.deep:
            h = h + F.silu(layer(h))
        return self.leave(h).view(b, r, 2)


@torch.no_grad()
def verify(model, loader, accelerator):
    model.eval()
    error = torch.zeros(2)
    count = 0
    for panels, rays, exits in loader:
        guess, exits = accelerator.gather_for_metrics((model(panels, rays), exits))
        error += (guess - exits).abs().sum((0, 1)).cpu()
        count += exits.shape[0] * exits.shape[1]
    model.train()
    return (error / count).tolist()


def main(cfg: LensConfig):
    accelerator = Accelerator(cpu=True)
    set_seed(cfg.seed)
    train = DataLoader(RayTable(cfg.panels, cfg), cfg.batch_panels, shuffle=True, drop_last=True)
    check = DataLoader(RayTable(cfg.held_out, cfg), cfg.batch_panels)
    model = LensSurrogate(cfg)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=1e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, cfg.epochs * len(train))
    model, opt, train, check, sched = accelerator.prepare(model, opt, train, check, sched)

    traced = 0
    began = time.perf_counter()
    for epoch in range(cfg.epochs):
        total = 0.0
        for panels, rays, exits in train:
            guess = model(panels, rays)
            loss = F.smooth_l1_loss(guess, exits, beta=0.1)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad()
            total += loss.item()
            traced += exits.shape[0] * exits.shape[1]
        angle, light = verify(model, check, accelerator)
        accelerator.print(f"epoch {epoch:2d}  loss {total / len(train):.4f}  exit {angle:.4f} rad  light {light:.4f}")
    took = time.perf_counter() - began
    print(f"{traced / took:.1f} rays/s")


if __name__ == "__main__":
    main(LensConfig())
