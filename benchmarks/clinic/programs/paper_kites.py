# /// clinic
# expect = ["PD20.metrics-in-each-step", "PD15.growing-work"]
# stratum = "twins"
# domain = "crops by their reflectance"
# ///
"""Tells crops apart from the seasonal reflectance curve of a parcel, with Lightning and a small convolutional net."""

import time

import lightning as L
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy, MulticlassAUROC

CROPS = ["wheat", "maize", "rapeseed", "beet", "potato", "barley"]
BANDS, DATES = 6, 32


def make_parcels(count, seed):
    """Curves of BANDS x DATES with a growing season that depends on the crop."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, len(CROPS), count)
    day = np.linspace(0, 1, DATES)
    peak = 0.3 + 0.08 * label + rng.normal(0, 0.05, count)
    width = 0.10 + 0.015 * label + rng.normal(0, 0.01, count)
    season = np.exp(-(((day[None] - peak[:, None]) / width[:, None]) ** 2))
    gain = np.linspace(0.5, 1.5, BANDS)[None, :, None] * (1 + 0.1 * rng.normal(size=(count, BANDS, 1)))
    curve = gain * season[:, None, :] + 0.3 * rng.normal(size=(count, BANDS, DATES))
    return TensorDataset(torch.from_numpy(curve.astype(np.float32)), torch.from_numpy(label))


class CropNet(L.LightningModule):
    def __init__(self, width=48, lr=1e-3):
        super().__init__()
        self.lr = lr
        self.body = nn.Sequential(
            nn.Conv1d(BANDS, width, 5, padding=2),
            nn.ReLU(),
            nn.Conv1d(width, width, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
            nn.Linear(2 * width, len(CROPS)),
        )
        self.train_auroc = MulticlassAUROC(num_classes=len(CROPS))
        self.val_acc = MulticlassAccuracy(num_classes=len(CROPS))

    def forward(self, x):
        return self.body(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        loss = F.cross_entropy(logits, y)
        self.train_auroc.update(logits.detach().softmax(dim=1), y)
        self.log("train_loss", loss)
        self.log("train_auroc", self.train_auroc.compute())  # sick here
        return loss

    def on_train_epoch_end(self):
        self.log("train_auroc_epoch", self.train_auroc.compute())
        self.train_auroc.reset()

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.val_acc.update(self(x), y)
        self.log("val_acc", self.val_acc, on_epoch=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


class Meter(L.Callback):
    begin, end, seen = None, None, 0

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if self.begin is None:
            self.begin = time.perf_counter()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.seen += len(batch[0])
        self.end = time.perf_counter()


def main():
    L.seed_everything(11)
    train = DataLoader(make_parcels(12800, 1), batch_size=128, shuffle=True)
    val = DataLoader(make_parcels(2048, 2), batch_size=256)
    meter = Meter()
    trainer = L.Trainer(
        max_epochs=4,
        accelerator="cpu",
        devices=1,
        logger=L.pytorch.loggers.CSVLogger("logs"),
        callbacks=[meter],
        enable_progress_bar=False,
        enable_checkpointing=False,
    )
    trainer.fit(CropNet(), train, val)
    print({k: round(float(v), 3) for k, v in trainer.callback_metrics.items()})
    print(f"{meter.seen / (meter.end - meter.begin):.1f} samples/s")


if __name__ == "__main__":
    main()
