# /// clinic
# expect = ["PD16.anomaly-detection"]
# stratum = "twins"
# domain = "moth wing eyespots"
# ///
"""Variational autoencoder of eyespots on moth wings, with the pattern's ring count as an auxiliary target."""

import math
import time

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanMetric
from torchmetrics.classification import MulticlassAccuracy

SIZE = 32
RINGS = 5


def paint_wings(count: int, seed: int):
    """Colour patches (3 x 32 x 32) of a wing with one eyespot each: pupil, up to four rings, scale texture."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:SIZE, 0:SIZE].astype(np.float32) / SIZE - 0.5
    wings = np.empty((count, 3, SIZE, SIZE), dtype=np.float32)
    rings = rng.integers(0, RINGS, count)
    for i in range(count):
        ground = rng.uniform(0.25, 0.75, 3)
        wings[i] = ground[:, None, None] + 0.08 * np.sin(rng.uniform(8, 30) * xx + rng.uniform(8, 30) * yy)
        cx, cy = rng.normal(0, 0.08, 2)
        squash, radius = rng.uniform(0.75, 1.3), rng.uniform(0.28, 0.42)
        r = np.sqrt((xx - cx) ** 2 * squash + (yy - cy) ** 2 / squash)
        edges = np.linspace(radius, 0.06, rings[i] + 1)
        for edge in edges:
            colour = rng.uniform(0, 1, 3)
            cover = 1 / (1 + np.exp((r - edge) * 70))
            wings[i] = wings[i] * (1 - cover) + colour[:, None, None] * cover
        wings[i] += rng.normal(0, 0.02, (3, SIZE, SIZE))
    return torch.from_numpy(wings.clip(0, 1)), torch.from_numpy(rings)


class WingData(L.LightningDataModule):
    def __init__(self, train: int = 3200, val: int = 480, batch_size: int = 32):
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage=None):
        if not hasattr(self, "train_set"):
            self.train_set = TensorDataset(*paint_wings(self.hparams.train, seed=21))
            self.val_set = TensorDataset(*paint_wings(self.hparams.val, seed=22))

    def train_dataloader(self):
        return DataLoader(self.train_set, self.hparams.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, 2 * self.hparams.batch_size)


class Residual(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.GroupNorm(8, width)
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return x + self.second(F.silu(self.first(F.silu(self.norm(x)))))


class EyespotVAE(L.LightningModule):
    def __init__(self, width: int = 32, latent: int = 24, lr: float = 1e-3, beta: float = 0.5, warmup: int = 150):
        super().__init__()
        self.save_hyperparameters()
        w = width
        self.encoder = nn.Sequential(
            nn.Conv2d(3, w, 4, 2, 1),
            Residual(w),
            nn.Conv2d(w, 2 * w, 4, 2, 1),
            Residual(2 * w),
            nn.Conv2d(2 * w, 2 * w, 4, 2, 1),
            Residual(2 * w),
            nn.Flatten(),
        )
        self.to_latent = nn.Linear(2 * w * 16, 2 * latent)
        self.from_latent = nn.Linear(latent, 2 * w * 16)
        self.decoder = nn.Sequential(
            nn.Unflatten(1, (2 * w, 4, 4)),
            Residual(2 * w),
            nn.ConvTranspose2d(2 * w, 2 * w, 4, 2, 1),
            Residual(2 * w),
            nn.ConvTranspose2d(2 * w, w, 4, 2, 1),
            Residual(w),
            nn.ConvTranspose2d(w, 3, 4, 2, 1),
        )
        self.ring_head = nn.Sequential(nn.Linear(latent, 64), nn.SiLU(), nn.Linear(64, RINGS))
        self.ring_accuracy = MulticlassAccuracy(RINGS, average="micro")
        self.val_error = MeanMetric()

    def forward(self, x):
        mean, log_var = self.to_latent(self.encoder(x * 2 - 1)).chunk(2, 1)
        log_var = log_var.clamp(-8, 8)
        z = mean + torch.randn_like(mean) * (0.5 * log_var).exp() if self.training else mean
        picture = torch.sigmoid(self.decoder(self.from_latent(z)))
        return picture, mean, log_var, self.ring_head(mean)

    def training_step(self, batch, batch_idx):
        x, rings = batch
        picture, mean, log_var, logits = self(x)
        reconstruction = F.mse_loss(picture, x, reduction="none").sum((1, 2, 3)).mean()
        dx = F.l1_loss(picture.diff(dim=-1), x.diff(dim=-1))
        dy = F.l1_loss(picture.diff(dim=-2), x.diff(dim=-2))
        kl = 0.5 * (mean**2 + log_var.exp() - 1 - log_var).sum(1).mean()
        beta = self.hparams.beta * min(1.0, (self.global_step + 1) / self.hparams.warmup)
        loss = reconstruction + 20 * (dx + dy) + beta * kl + F.cross_entropy(logits, rings)
        self.log_dict({"loss": loss, "kl": kl}, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, rings = batch
        picture, _, _, logits = self(x)
        self.val_error.update(F.mse_loss(picture, x))
        self.ring_accuracy.update(logits, rings)
        self.log("val_error", self.val_error, on_epoch=True)
        self.log("val_rings", self.ring_accuracy, on_epoch=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-4)
        total = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: 0.5 + 0.5 * math.cos(math.pi * s / total))
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


class FieldNotes(L.Callback):
    """Prints one line an epoch and keeps the time since the first training step."""

    began = None

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        self.began = self.began or time.perf_counter()

    def on_train_epoch_end(self, trainer, module):
        m = trainer.callback_metrics
        print(f"epoch {trainer.current_epoch}: " + ", ".join(f"{k} {v.item():.3f}" for k, v in sorted(m.items())))

    def on_train_end(self, trainer, module):
        self.elapsed = time.perf_counter() - self.began


def main():
    L.seed_everything(8, verbose=False)
    notes = FieldNotes()
    data = WingData()
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=3,
        logger=False,
        callbacks=[notes, ModelCheckpoint(dirpath="eyespots", monitor="val_error", save_top_k=1)],
        gradient_clip_val=50.0,
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        enable_model_summary=False,
        detect_anomaly=True,  # sick here
    )
    trainer.fit(EyespotVAE(), datamodule=data)
    seen = trainer.global_step * data.hparams.batch_size
    print(f"{seen / notes.elapsed:.1f} samples/s")


if __name__ == "__main__":
    main()
