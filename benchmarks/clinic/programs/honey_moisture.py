# /// clinic
# expect = ["PD10.element-loop"]
# stratum = "twins"
# domain = "heather honey moisture"
# allow = ["PD03.per-sample-indexing"]
# ///
"""Moisture of heather honey from near-infrared spectra.

A dense VAE gives a latent of the spectrum, a head on the latent gives the moisture and its spread. Heather honey
is thixotropic and often outside the scale of the hand refractometer (13 % to 25 %), so many references are only known
to be below or above the end of the scale: the likelihood is that of a Tobit model.
"""

import copy
import math
import time
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BELOW, READ, ABOVE = 0, 1, 2
SCALE_LOW, SCALE_HIGH = 13.0, 25.0


@dataclass
class Config:
    samples: int = 6400
    bands: int = 256
    latent: int = 12
    widths: tuple = (256, 96)
    batch: int = 96
    epochs: int = 30
    lr: float = 1.5e-3
    beta: float = 0.02
    ema: float = 0.995
    seed: int = 8
    centre: float = field(default=19.0)


def spectra(cfg):
    """Log(1/R) spectra, 1100 to 2300 nm: water, sugar and wax bands on a sloping baseline, with scatter."""
    rng = np.random.default_rng(cfg.seed)
    nm = np.linspace(1100, 2300, cfg.bands)

    def band(at, width):
        return np.exp(-(((nm - at) / width) ** 2))

    water = 0.5 * band(1450, 55) + 1.0 * band(1935, 50)
    sugar = 0.4 * band(1580, 80) + 0.6 * band(2090, 90) + 0.3 * band(1200, 50)
    wax = 0.3 * band(1725, 25) + 0.3 * band(1765, 25)
    n = cfg.samples
    moisture = rng.normal(20.0, 3.6, n).clip(10, 32)
    protein = rng.gamma(2.0, 0.5, n)
    sweet = 0.8 - moisture / 100 + rng.normal(0, 0.02, n)
    x = np.outer(moisture / 20, water) + np.outer(sweet, sugar) + np.outer(rng.gamma(1.5, 0.2, n), wax)
    x += np.outer(0.1 * protein, band(2180, 40)) + np.outer(rng.normal(0, 0.1, n), (nm - 1700) / 600)
    x = x * rng.normal(1, 0.05, (n, 1)) + rng.normal(0, 0.05, (n, 1)) + rng.normal(0, 0.01, x.shape)
    kind = np.where(moisture < SCALE_LOW, BELOW, np.where(moisture > SCALE_HIGH, ABOVE, READ))
    reading = (moisture + rng.normal(0, 0.2, n)).clip(SCALE_LOW, SCALE_HIGH)
    x = (x - x.mean(0)) / x.std()
    return (
        torch.tensor(x, dtype=torch.float32),
        torch.tensor(reading, dtype=torch.float32),
        torch.tensor(kind),
        torch.tensor(moisture, dtype=torch.float32),
    )


def dense(sizes):
    layers = []
    for cin, cout in zip(sizes[:-1], sizes[1:]):
        layers += [nn.Linear(cin, cout), nn.LayerNorm(cout), nn.SiLU()]
    return layers


class SpectrumVAE(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        wide, narrow = cfg.widths
        self.encoder = nn.Sequential(*dense([cfg.bands, wide, narrow]), nn.Linear(narrow, 2 * cfg.latent))
        self.decoder = nn.Sequential(*dense([cfg.latent, narrow, wide]), nn.Linear(wide, cfg.bands))
        self.head = nn.Sequential(*dense([cfg.latent, 48]), nn.Linear(48, 2))
        self.centre = cfg.centre

    def forward(self, x):
        mu, logvar = self.encoder(x).chunk(2, dim=1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp() if self.training else mu
        moisture, logsd = self.head(z).unbind(1)
        return self.decoder(z), mu, logvar, self.centre + 4 * moisture, logsd.clamp(-3, 2)


def tobit(mean, logsd, reading, kind):
    """Mean negative log likelihood of readings on a scale with two ends."""
    total = mean.new_zeros(())  # sick
    for m, s, r, k in zip(mean, logsd, reading, kind):  # sick here
        z = (r - m) / s.exp()  # sick
        if k == BELOW:  # sick
            total = total - torch.special.log_ndtr(z)  # sick
        elif k == ABOVE:  # sick
            total = total - torch.special.log_ndtr(-z)  # sick
        else:  # sick
            total = total + 0.5 * z**2 + s + 0.5 * math.log(2 * math.pi)  # sick
    return total / len(reading)  # sick
    z = (reading - mean) / logsd.exp()  # well
    tail = -torch.special.log_ndtr(torch.where(kind == BELOW, z, -z))  # well
    seen = 0.5 * z**2 + logsd + 0.5 * math.log(2 * math.pi)  # well
    return torch.where(kind == READ, seen, tail).mean()  # well


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        x, reading, kind, truth = spectra(cfg)
        cut = int(0.9 * len(x))
        self.train_set = TensorDataset(x[:cut], reading[:cut], kind[:cut])
        self.held = (x[cut:], truth[cut:])
        self.model = SpectrumVAE(cfg)
        self.mean_model = copy.deepcopy(self.model).eval().requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=cfg.lr)
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.93)

    def step(self, x, reading, kind):
        rebuilt, mu, logvar, mean, logsd = self.model(x + 0.01 * torch.randn_like(x))
        recon = F.mse_loss(rebuilt, x)
        kl = -0.5 * (1 + logvar - mu**2 - logvar.exp()).mean()
        loss = recon + self.cfg.beta * kl + 0.3 * tobit(mean, logsd, reading, kind)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.optimizer.step()
        with torch.no_grad():
            ours, theirs = list(self.mean_model.parameters()), list(self.model.parameters())
            torch._foreach_lerp_(ours, theirs, 1 - self.cfg.ema)
        return loss.detach()

    @torch.no_grad()
    def evaluate(self):
        x, truth = self.held
        *_, mean, logsd = self.mean_model(x)
        gap = (mean - truth).abs()
        inside = (truth > SCALE_LOW) & (truth < SCALE_HIGH)
        return gap[inside].mean().item(), gap[~inside].mean().item(), logsd.exp().mean().item()

    def fit(self):
        cfg = self.cfg
        loader = DataLoader(self.train_set, batch_size=cfg.batch, shuffle=True, drop_last=True)
        seen, began = 0, time.perf_counter()
        for epoch in range(cfg.epochs):
            self.model.train()
            losses = []
            for x, reading, kind in loader:
                losses.append(self.step(x, reading, kind))
                seen += len(x)
            self.schedule.step()
            on, off, spread = self.evaluate()
            loss = torch.stack(losses).mean().item()
            print(f"epoch {epoch:2d} loss {loss:.4f} mae on scale {on:.2f} off {off:.2f} sd {spread:.2f}")
        torch.save(self.mean_model.state_dict(), "honey_moisture.pt")
        return seen / (time.perf_counter() - began)


if __name__ == "__main__":
    rate = Trainer(Config()).fit()
    print(f"{rate:.1f} samples/s")
