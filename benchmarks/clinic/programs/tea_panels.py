# /// clinic
# expect = ["PD17.gradients-without-optimizer"]
# stratum = "twins"
# domain = "tea tasting"
# ///
"""Near-infrared spectra of tea leaves: masked pre-training, then scores of three tasting panels.

There are many spectra and few tasted cups, so an encoder learns to fill in hidden bands first; on top of it a small
head for each panel learns that panel's scores while the encoder stays as it is.
"""

import math
import time

import lightning as L
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback
from torch.utils.data import DataLoader, TensorDataset

BANDS, PATCH = 512, 16
ATTRIBUTES = ["astringency", "aroma", "umami", "body", "briskness"]
PANELS = ["Uji", "Darjeeling", "Fujian"]


def make_leaves(n, rng):
    """Absorption peaks of catechins, caffeine, theanine, water, ... in amounts that differ from lot to lot."""
    wavelength = np.linspace(0, 1, BANDS, dtype=np.float32)
    centres, widths = np.linspace(0.05, 0.95, 9), np.array([0.02, 0.05, 0.03, 0.06, 0.02, 0.04, 0.03, 0.05, 0.02])
    peaks = np.exp(-(((wavelength - centres[:, None]) / widths[:, None]) ** 2)).astype(np.float32)
    amounts = rng.gamma(3.0, 0.3, (n, 9)).astype(np.float32)
    slope = rng.normal(0, 0.3, (n, 1)).astype(np.float32)
    spectra = amounts @ peaks + slope * wavelength + rng.normal(0, 0.02, (n, BANDS)).astype(np.float32)
    return torch.from_numpy(spectra - spectra.mean(axis=1, keepdims=True)), torch.from_numpy(amounts)


def taste(amounts, taste_of_panel, generator):
    liking = torch.tanh(amounts - 0.9) @ taste_of_panel
    return liking + 0.15 * torch.randn(liking.shape, generator=generator)


class SpectrumEncoder(nn.Module):
    def __init__(self, dim=64, layers=3, heads=4):
        super().__init__()
        self.patches = nn.Linear(PATCH, dim)
        self.hidden = nn.Parameter(torch.zeros(dim))
        place = torch.arange(BANDS // PATCH)[:, None] / 10 ** torch.linspace(0, 2, dim // 2)
        self.register_buffer("place", torch.cat([place.sin(), place.cos()], dim=1))
        layer = nn.TransformerEncoderLayer(
            dim, heads, 4 * dim, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(dim), enable_nested_tensor=False)

    def forward(self, spectra, mask=None):
        x = self.patches(spectra.unflatten(1, (-1, PATCH)))
        if mask is not None:
            x = torch.where(mask.unsqueeze(-1), self.hidden, x)
        return self.layers(x + self.place)


class HiddenBands(L.LightningModule):
    def __init__(self, encoder, lr=1e-3, share=0.4, steps=0):
        super().__init__()
        self.encoder = encoder
        self.fill_in = nn.Linear(64, PATCH)
        self.lr, self.share, self.steps = lr, share, steps

    def training_step(self, batch, index):
        (spectra,) = batch
        patches = spectra.unflatten(1, (-1, PATCH))
        mask = torch.rand(patches.shape[:2]) < self.share
        guess = self.fill_in(self.encoder(spectra, mask))
        return F.mse_loss(guess[mask], patches[mask])

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr, weight_decay=0.05)
        warm = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda s: min(1, (s + 1) / 20) * 0.5 * (1 + math.cos(math.pi * s / self.steps))
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": warm, "interval": "step"}}


class PanelScores(L.LightningModule):
    """A head for the scores of one panel on the pre-trained encoder."""

    def __init__(self, encoder, lr=3e-3):
        super().__init__()
        self.encoder = encoder  # here
        self.encoder.requires_grad_(False)  # well
        self.weigh = nn.Linear(64, 1)
        self.head = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, len(ATTRIBUTES)))
        self.lr = lr
        self.errors = []

    def forward(self, spectra):
        tokens = self.encoder(spectra)
        weights = self.weigh(tokens).softmax(dim=1)
        return self.head((weights * tokens).sum(dim=1))

    def training_step(self, batch, index):
        spectra, scores = batch
        return F.smooth_l1_loss(self(spectra), scores)

    def validation_step(self, batch, index):
        spectra, scores = batch
        self.errors.append((self(spectra) - scores).abs().mean())

    def configure_optimizers(self):
        learned = [*self.weigh.parameters(), *self.head.parameters()]
        return torch.optim.AdamW(learned, lr=self.lr, weight_decay=0.01)  # here


class Clock(Callback):
    """First and last step of all phases."""

    def __init__(self):
        self.began, self.ended, self.samples = None, None, 0

    def on_train_batch_start(self, trainer, module, batch, index):
        if self.began is None:
            self.began = time.perf_counter()

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        self.samples += len(batch[0])

    def on_train_end(self, trainer, module):
        self.ended = time.perf_counter()


def trainer_for(epochs, clock):
    return L.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        callbacks=[clock],
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )


def main():
    L.seed_everything(1610)
    rng = np.random.default_rng(1610)
    clock = Clock()
    encoder = SpectrumEncoder()

    spectra, _ = make_leaves(6400, rng)
    leaves = DataLoader(TensorDataset(spectra), batch_size=64, shuffle=True, drop_last=True)
    trainer_for(2, clock).fit(HiddenBands(encoder, steps=2 * len(leaves)), leaves)
    torch.save(encoder.state_dict(), "encoder.pt")

    for number, panel in enumerate(PANELS):
        generator = torch.Generator().manual_seed(number)
        spectra, amounts = make_leaves(2048 + 256, rng)
        scores = taste(amounts, torch.randn(9, len(ATTRIBUTES), generator=generator), generator)
        cups = TensorDataset(spectra[:2048], scores[:2048])
        kept = TensorDataset(spectra[2048:], scores[2048:])
        module = PanelScores(encoder)
        trainer_for(5, clock).fit(
            module, DataLoader(cups, batch_size=64, shuffle=True), DataLoader(kept, batch_size=128)
        )
        torch.save(module.head.state_dict(), f"{panel}.pt")
        print(f"{panel}: mean error {torch.stack(module.errors[-2:]).mean().item():.3f}")

    rate = clock.samples / (clock.ended - clock.began)
    print(f"{rate:.1f} samples/s")


if __name__ == "__main__":
    main()
