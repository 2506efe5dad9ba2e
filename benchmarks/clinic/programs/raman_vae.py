# /// clinic
# expect = ["PD18.given-up"]
# stratum = "twins"
# domain = "Raman spectroscopy, variational autoencoder"
# ///
"""Fits a variational autoencoder with KL warm-up to Raman spectra of mineral mixtures."""

import time

import torch
import torch.nn as nn
import torch.nn.functional as F

WAVENUMBERS = 800
LATENT = 12
HIDDEN = 640
BATCH = 384
STEPS = 320


def synthesise_spectra(count, generator):
    """Mixtures of eight minerals with Lorentzian bands, fluorescence background and shot noise."""
    axis = torch.linspace(0, 1, WAVENUMBERS)
    centres = torch.rand(8, 5, generator=generator)
    widths = 0.004 + 0.01 * torch.rand(8, 5, generator=generator)
    heights = 0.2 + torch.rand(8, 5, generator=generator)
    bands = heights[..., None] / (1 + ((axis - centres[..., None]) / widths[..., None]) ** 2)
    minerals = bands.sum(1)
    fractions = torch.rand(count, 8, generator=generator).pow(4)
    fractions = fractions / fractions.sum(1, keepdim=True)
    slope = torch.rand(count, 1, generator=generator)
    background = 0.3 * slope * torch.exp(-2.0 * axis)
    spectra = fractions @ minerals + background
    spectra = spectra + 0.02 * torch.randn(count, WAVENUMBERS, generator=generator)
    return (spectra - spectra.mean()) / spectra.std()


class SpectraVAE(nn.Module):
    def __init__(self, warmup):
        super().__init__()
        self.warmup = warmup
        self.num_updates = 0  # sick
        self.register_buffer("num_updates", torch.zeros(()))  # well
        self.encoder = nn.Sequential(
            nn.Linear(WAVENUMBERS, HIDDEN),
            nn.LayerNorm(HIDDEN),
            nn.SiLU(),
            nn.Linear(HIDDEN, HIDDEN // 2),
            nn.LayerNorm(HIDDEN // 2),
            nn.SiLU(),
        )
        self.to_latent = nn.Linear(HIDDEN // 2, 2 * LATENT)
        self.decoder = nn.Sequential(
            nn.Linear(LATENT, HIDDEN // 2),
            nn.LayerNorm(HIDDEN // 2),
            nn.SiLU(),
            nn.Linear(HIDDEN // 2, HIDDEN),
            nn.LayerNorm(HIDDEN),
            nn.SiLU(),
            nn.Linear(HIDDEN, WAVENUMBERS),
        )

    def kl_weight(self):
        self.num_updates += 1  # sick here
        return min(1.0, self.num_updates / self.warmup)  # sick
        self.num_updates.add_(1)  # well
        return (self.num_updates / self.warmup).clamp(max=1.0)  # well

    def forward(self, x):
        mean, log_var = self.to_latent(self.encoder(x)).chunk(2, dim=1)
        z = mean + torch.exp(0.5 * log_var) * torch.randn_like(mean)
        reconstruction = self.decoder(z)
        error = F.mse_loss(reconstruction, x, reduction="none").sum(1).mean()
        kl = -0.5 * (1 + log_var - mean.square() - log_var.exp()).sum(1).mean()
        return error + self.kl_weight() * kl, error, kl


def batches(spectra, size, generator):
    while True:
        order = torch.randperm(len(spectra), generator=generator)
        for part in order.split(size):
            if len(part) == size:
                yield spectra[part]


def train(model, spectra, steps, generator):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4)
    stream = batches(spectra, BATCH, generator)
    began = 0.0
    for step in range(1, steps + 1):
        loss, error, kl = model(next(stream))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 5:
            began = time.perf_counter()
        if step % 80 == 0:
            print(f"step {step}: loss {loss.item():.2f} error {error.item():.2f} kl {kl.item():.2f}")
    return (steps - 5) / (time.perf_counter() - began)


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(11)
    spectra = synthesise_spectra(12000, generator)
    model = SpectraVAE(warmup=200)
    model = torch.compile(model)
    rate = train(model, spectra, STEPS, generator)
    print(f"{rate:.2f} steps/s")


if __name__ == "__main__":
    main()
