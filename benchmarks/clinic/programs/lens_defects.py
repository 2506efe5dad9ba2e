# /// clinic
# expect = ["PD10.product-order"]
# stratum = "twins"
# domain = "anomaly detection, manufacturing"
# sizes = {BATCH = [1600, 2000], HIDDEN = [224, 288]}
# ///
"""Autoencoder whose latent codes follow a learned Gaussian mixture (energy-based defect score)."""

import math
import time

import torch
from torch import nn
from torch.nn import functional as F

BATCH = 1800
HIDDEN = 256
SENSORS = 96
LATENT = 24
PARTS = 3


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.centre = nn.Parameter(torch.randn(PARTS, LATENT))
        self.factor = nn.Parameter(torch.eye(LATENT).repeat(PARTS, 1, 1))
        self.weight = nn.Parameter(torch.zeros(PARTS))

    def forward(self, z):
        terms = []
        prior = self.weight.log_softmax(0)
        for k in range(PARTS):
            low = self.factor[k].tril()
            precision = low @ low.T
            d = z - self.centre[k]
            dist = (d @ precision @ d.T).diagonal()  # sick here
            dist = ((d @ precision) * d).sum(1)  # well
            logdet = low.diagonal().abs().clamp(min=1e-4).log().sum()
            terms.append(prior[k] - 0.5 * dist + logdet - 0.5 * LATENT * math.log(2 * math.pi))
        return -torch.logsumexp(torch.stack(terms, 1), 1)


class LensModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Linear(SENSORS, HIDDEN), nn.ELU(), nn.Linear(HIDDEN, HIDDEN), nn.ELU(), nn.Linear(HIDDEN, LATENT)
        )
        self.dec = nn.Sequential(
            nn.Linear(LATENT, HIDDEN), nn.ELU(), nn.Linear(HIDDEN, HIDDEN), nn.ELU(), nn.Linear(HIDDEN, SENSORS)
        )
        self.mixture = Mixture()

    def forward(self, x):
        z = self.enc(x)
        return F.mse_loss(self.dec(z), x), self.mixture(z)


def lens_rows(n, seed, defects=0.0):
    g = torch.Generator().manual_seed(seed)
    mould = torch.randint(0, PARTS, (n,), generator=g)
    basis = torch.randn(PARTS, 8, SENSORS, generator=torch.Generator().manual_seed(99))
    x = torch.einsum("nk,nks->ns", torch.randn(n, 8, generator=g), basis[mould]) / 3
    bad = torch.rand(n, generator=g) < defects
    x[bad] += torch.randn(int(bad.sum()), SENSORS, generator=g)
    return x + 0.1 * torch.randn(n, SENSORS, generator=g), bad


def separation(model, x, bad):
    with torch.no_grad():
        _, energy = model(x)
    return (energy[bad].median() - energy[~bad].median()).item()


torch.manual_seed(8)
rows, _ = lens_rows(BATCH * 60, 1)
probe, bad = lens_rows(BATCH, 2, defects=0.1)
model = LensModel()
opt = torch.optim.Adam(model.parameters(), lr=5e-4, fused=True)
EPOCHS = 10
for epoch in range(EPOCHS):
    if epoch == 1:
        begin = time.perf_counter()
    for index in torch.randperm(len(rows)).split(BATCH):
        recon, energy = model(rows[index])
        loss = recon + 0.02 * energy.mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(
        f"epoch {epoch} recon {recon.item():.4f} energy {energy.mean().item():.2f} "
        f"separation {separation(model, probe, bad):.2f}",
        flush=True,
    )
print(f"throughput {(EPOCHS - 1) * len(rows) / (time.perf_counter() - begin):.1f} lenses/s")
