# /// clinic
# expect = ["PD20.evaluation-too-often"]
# stratum = "twins"
# domain = "mushroom gill prints"
# ///
"""Spore prints of mushroom gills: a variational autoencoder with a species head, to sort a herbarium's print cards.

A print is a 48 x 48 grey image of radial gills; their number, forks and waviness differ between the species.
"""

import time

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

SIZE = 48
SPECIES = 8


def draw_prints(count, seed):
    rng = np.random.default_rng(seed)
    axis = np.linspace(-1, 1, SIZE, dtype=np.float32)
    y, x = np.meshgrid(axis, axis, indexing="ij")
    species = rng.integers(0, SPECIES, count)
    gills = (9 + 3 * species + rng.integers(-1, 2, count))[:, None, None]
    cx, cy = rng.normal(0, 0.06, (2, count, 1, 1)).astype(np.float32)
    radius = np.hypot(x - cx, y - cy)
    angle = np.arctan2(y - cy, x - cx)
    wave = rng.uniform(0, 0.6, (count, 1, 1)) * np.sin(7 * radius + rng.uniform(0, 6, (count, 1, 1)))
    lines = 0.5 + 0.5 * np.cos(gills * angle + wave)
    cap = rng.uniform(0.7, 0.95, (count, 1, 1))
    image = lines * (radius < cap) * (radius > 0.15) + 0.08 * rng.standard_normal((count, SIZE, SIZE))
    return TensorDataset(torch.from_numpy(image.clip(0, 1).astype(np.float32))[:, None], torch.from_numpy(species))


class PrintCards(L.LightningDataModule):
    def __init__(self, batch_size=32):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage=None):
        self.training = draw_prints(3840, seed=3)
        self.held_out = draw_prints(640, seed=4)

    def train_dataloader(self):
        return DataLoader(self.training, batch_size=self.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.held_out, batch_size=2 * self.batch_size)


def down(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=2, padding=1),
        nn.BatchNorm2d(outputs),
        nn.SiLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.SiLU(),
    )


def up(inputs, outputs):
    return nn.Sequential(
        nn.Upsample(scale_factor=2, mode="nearest"),
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.SiLU(),
    )


class PrintVAE(L.LightningModule):
    def __init__(self, latent=48, beta=0.02, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = nn.Sequential(down(1, 16), down(16, 32), down(32, 64), nn.Flatten())
        self.to_latent = nn.Linear(64 * 36, 2 * latent)
        self.from_latent = nn.Sequential(nn.Linear(latent, 64 * 36), nn.SiLU(), nn.Unflatten(1, (64, 6, 6)))
        self.decoder = nn.Sequential(up(64, 32), up(32, 24), up(24, 12), nn.Conv2d(12, 1, 3, padding=1))
        self.species = nn.Sequential(nn.Linear(latent, 96), nn.SiLU(), nn.Linear(96, SPECIES))
        self.accuracy = MulticlassAccuracy(SPECIES)
        self.f1 = MulticlassF1Score(SPECIES)

    def forward(self, image):
        mean, logvar = self.to_latent(self.encoder(image)).chunk(2, dim=-1)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp() if self.training else mean
        return self.decoder(self.from_latent(z)), self.species(z), mean, logvar

    def losses(self, batch):
        image, species = batch
        drawn, logits, mean, logvar = self(image)
        rebuilt = F.binary_cross_entropy_with_logits(drawn, image)
        prior = -0.5 * (1 + logvar - mean.square() - logvar.exp()).mean()
        sort = F.cross_entropy(logits, species)
        return rebuilt + self.hparams.beta * prior + 0.2 * sort, rebuilt, logits

    def training_step(self, batch, batch_idx):
        loss, rebuilt, _ = self.losses(batch)
        self.log_dict({"train/loss": loss, "train/rebuilt": rebuilt})
        return loss

    def validation_step(self, batch, batch_idx):
        loss, rebuilt, logits = self.losses(batch)
        self.accuracy(logits, batch[1])
        self.f1(logits, batch[1])
        self.log_dict({"val/loss": loss, "val/rebuilt": rebuilt, "val/accuracy": self.accuracy, "val/f1": self.f1})

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.trainer.estimated_stepping_batches)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Tempo(Callback):
    def on_train_start(self, trainer, module):
        self.began = time.perf_counter()

    def on_train_epoch_end(self, trainer, module):
        shown = {k: round(float(v), 4) for k, v in trainer.callback_metrics.items()}
        print(f"epoch {trainer.current_epoch}: {shown}", flush=True)

    def on_train_end(self, trainer, module):
        prints = trainer.global_step * trainer.datamodule.batch_size
        self.rate = prints / (time.perf_counter() - self.began)


def main():
    L.seed_everything(12)
    tempo = Tempo()
    trainer = L.Trainer(
        max_epochs=2,
        accelerator="cpu",
        gradient_clip_val=1.0,
        val_check_interval=10,  # sick here
        log_every_n_steps=20,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
        callbacks=[tempo],
    )
    trainer.fit(PrintVAE(), datamodule=PrintCards())
    print(f"{tempo.rate:.1f} prints/s")


if __name__ == "__main__":
    main()
