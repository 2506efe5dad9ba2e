# /// clinic
# expect = ["PD15.growing-hooks", "PD15.repeated-hooks"]
# stratum = "twins"
# domain = "vitrified hill-fort stone spectra"
# ///
"""Variational autoencoder for Raman spectra of vitrified hill-fort stones (Lightning).

The latent code is meant for clustering ramparts by peak firing temperature; during training we also keep an eye on
channels of the encoder that stay quiet, because the first runs lost half of them.
"""

import time
from collections import defaultdict

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

POINTS = 512
SHIFT = np.linspace(150, 1400, POINTS)
# quartz, feldspar, glass hump (low), glass hump (high), pyroxene, spinel
BANDS = np.array([464.0, 508.0, 480.0, 1030.0, 664.0, 690.0])
WIDTHS = np.array([9.0, 12.0, 85.0, 95.0, 14.0, 16.0])


def measure_stones(n, seed):
    rng = np.random.default_rng(seed)
    firing = rng.uniform(0, 1, n)
    crystalline = np.stack([1 - firing, 0.9 - 0.8 * firing], 1)
    glass = np.stack([firing**1.5, 1.2 * firing**1.5], 1)
    regrown = np.stack([np.clip(firing - 0.5, 0, 1), np.clip(firing - 0.7, 0, 1)], 1) * 1.5
    weights = np.concatenate([crystalline, glass, regrown], 1) * rng.lognormal(0, 0.3, (n, len(BANDS)))
    centres = BANDS + rng.normal(0, 2.5, (n, len(BANDS)))
    peaks = 1 / (1 + ((SHIFT[None, None] - centres[:, :, None]) / WIDTHS[None, :, None]) ** 2)
    spectrum = (weights[:, :, None] * peaks).sum(1)
    slope = rng.normal(0, 0.3, (n, 1)) * np.linspace(-1, 1, POINTS)
    spectrum = spectrum + slope + rng.normal(0, 0.03, spectrum.shape)
    spectrum = (spectrum - spectrum.mean(1, keepdims=True)) / spectrum.std(1, keepdims=True)
    return torch.from_numpy(spectrum[:, None].astype(np.float32)), torch.from_numpy(firing.astype(np.float32))


class StoneData(L.LightningDataModule):
    def __init__(self, n_train=1200, n_val=240, batch_size=48):
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage):
        self.train_set = TensorDataset(*measure_stones(self.hparams.n_train, 1))
        self.val_set = TensorDataset(*measure_stones(self.hparams.n_val, 2))

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.hparams.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=self.hparams.batch_size)


class StoneVAE(L.LightningModule):
    def __init__(self, latent=12, lr=1e-3, beta=0.02, warmup_epochs=5):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = nn.Sequential(
            nn.Conv1d(1, 32, 9, stride=2, padding=4),
            nn.GELU(),
            nn.Conv1d(32, 48, 5, stride=2, padding=2),
            nn.GELU(),
            nn.Conv1d(48, 64, 5, stride=2, padding=2),
            nn.GELU(),
        )
        self.to_latent = nn.Linear(64 * POINTS // 8, 2 * latent)
        self.from_latent = nn.Linear(latent, 64 * POINTS // 8)
        self.decoder = nn.Sequential(
            nn.ConvTranspose1d(64, 48, 4, stride=2, padding=1),
            nn.GELU(),
            nn.ConvTranspose1d(48, 32, 4, stride=2, padding=1),
            nn.GELU(),
            nn.ConvTranspose1d(32, 1, 4, stride=2, padding=1),
        )
        self.handles = []
        self.activity = defaultdict(list)

    def watch_encoder(self):
        self.activity.clear()
        for name, layer in self.encoder.named_children():
            if isinstance(layer, nn.GELU):
                handle = layer.register_forward_hook(self.note_activity(name))  # here
                self.handles.append(handle)

    def note_activity(self, name):
        def hook(layer, inputs, output):
            if self.training:
                act = output.detach()
                self.activity[name].append((act.abs() < 0.05).float().mean(dim=(0, 2)))

        return hook

    def forward(self, x):
        mean, logvar = self.to_latent(self.encoder(x).flatten(1)).chunk(2, dim=1)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp() if self.training else mean
        h = F.gelu(self.from_latent(z)).view(len(x), 64, POINTS // 8)
        return self.decoder(h), mean, logvar

    def objective(self, x):
        recon, mean, logvar = self(x)
        rec = F.mse_loss(recon, x)
        kl = -0.5 * (1 + logvar - mean.square() - logvar.exp()).sum(1).mean()
        ramp = min(1.0, (self.current_epoch + 1) / self.hparams.warmup_epochs)
        return rec + ramp * self.hparams.beta * kl / self.hparams.latent, rec, mean

    def on_train_start(self):
        self.began = time.perf_counter()
        self.stones = 0

    def on_train_epoch_start(self):
        self.watch_encoder()

    def training_step(self, batch, batch_idx):
        x, _ = batch
        loss, rec, _ = self.objective(x)
        self.stones += len(x)
        self.log("train_rec", rec, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, firing = batch
        loss, rec, mean = self.objective(x)
        fit = torch.linalg.lstsq(torch.cat([mean, torch.ones(len(x), 1)], 1), firing[:, None]).solution
        left = firing - (torch.cat([mean, torch.ones(len(x), 1)], 1) @ fit)[:, 0]
        self.log_dict({"val_loss": loss, "val_rec": rec, "val_firing_rmse": left.square().mean().sqrt()})

    def on_train_epoch_end(self):
        for name, rows in self.activity.items():
            quiet = torch.stack(rows).mean(0)
            self.log(f"quiet_channels_{name}", (quiet > 0.9).float().sum())
        for handle in self.handles:  # well
            handle.remove()  # well
        self.handles.clear()  # well

    def on_train_end(self):
        self.rate = self.stones / (time.perf_counter() - self.began)

    def configure_optimizers(self):
        opt = torch.optim.Adam(self.parameters(), lr=self.hparams.lr)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, self.trainer.max_epochs)
        return {"optimizer": opt, "lr_scheduler": sched}


def main():
    L.seed_everything(3)
    model = StoneVAE()
    keep = ModelCheckpoint(dirpath="ramparts", monitor="val_loss", save_top_k=1)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=28,
        logger=CSVLogger("logs", name="stones"),
        callbacks=[keep],
        log_every_n_steps=25,
        gradient_clip_val=1.0,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, StoneData())
    metrics = {k: round(v.item(), 4) for k, v in trainer.callback_metrics.items()}
    print(metrics)
    print(f"{model.rate:.1f} spectra/s")


if __name__ == "__main__":
    main()
