# /// clinic
# expect = ["PD10.penalty-by-hand"]
# stratum = "twins"
# domain = "redshift of galaxies from spectra (Lightning)"
# ///
"""Redshift and star-formation rate of galaxies from low-resolution spectra, with Lightning."""

import math

import lightning as L
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


BINS = 1800
GALAXIES = 6000
BATCH = 48
STEPS = 600
LINES = (0.3727, 0.4861, 0.4959, 0.5007, 0.6563, 0.6583)  # micrometres, at rest


def make_spectra(count, seed):
    generator = torch.Generator().manual_seed(seed)
    wave = torch.linspace(0.35, 1.0, BINS)
    redshift = torch.rand(count, 1, generator=generator) * 0.5
    activity = torch.rand(count, 1, generator=generator)
    slope = torch.randn(count, 1, generator=generator)
    flux = 1 + 0.3 * slope * (wave - 0.6)
    for number, line in enumerate(LINES):
        centre = line * (1 + redshift)
        strength = activity * (0.5 + 0.3 * math.cos(number))
        flux = flux + strength * torch.exp(-(((wave - centre) / 0.003) ** 2))
    flux = flux + 0.15 * torch.randn(count, BINS, generator=generator)
    return flux - 1, torch.cat([redshift * 4 - 1, activity * 2 - 1], dim=1)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 2 * width)
        self.narrow = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.narrow(F.gelu(self.widen(self.norm(x))))


class SpectrumRegressor(L.LightningModule):
    def __init__(self, width=640, depth=3, learning_rate=0.02, ridge=1e-4):
        super().__init__()
        self.save_hyperparameters()
        self.stem = nn.Linear(BINS, width)
        self.blocks = nn.Sequential(*[Block(width) for _ in range(depth)])
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2))
        self.running = torch.zeros(())

    def forward(self, flux):
        return self.head(self.blocks(self.stem(flux)))

    def penalty(self):
        return sum(weights.pow(2).sum() for weights in self.parameters())  # here

    def training_step(self, batch, index):
        flux, target = batch
        loss = F.smooth_l1_loss(self(flux), target)
        self.running += loss.detach()
        if (index + 1) % 100 == 0:
            print(f"step {self.global_step + 1}  loss {self.running.item() / 100:.4f}", flush=True)
            self.running.zero_()
        loss = loss + self.hparams.ridge / 2 * self.penalty()  # sick here
        return loss

    def validation_step(self, batch, index):
        flux, target = batch
        error = (self(flux) - target).abs().mean(dim=0)
        print(f"mean error: redshift {error[0].item() / 4:.4f}, activity {error[1].item() / 2:.4f}")

    def configure_optimizers(self):
        decay = 0.0  # sick here
        decay = self.hparams.ridge  # well
        optimizer = torch.optim.SGD(
            self.parameters(), lr=self.hparams.learning_rate, momentum=0.9, weight_decay=decay, fused=True
        )
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def loader(dataset, steps, batch):
    sampler = RandomSampler(dataset, replacement=True, num_samples=steps * batch)
    return DataLoader(dataset, sampler=BatchSampler(sampler, batch, drop_last=True), batch_size=None)


def main():
    L.seed_everything(3)
    train = TensorDataset(*make_spectra(GALAXIES, seed=1))
    test = TensorDataset(*make_spectra(500, seed=2))
    model = SpectrumRegressor()
    trainer = L.Trainer(
        accelerator="cpu",
        max_steps=STEPS,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(model, loader(train, STEPS, BATCH))
    trainer.validate(model, DataLoader(test, batch_size=500), verbose=False)


if __name__ == "__main__":
    main()
