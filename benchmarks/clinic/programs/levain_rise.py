# /// clinic
# expect = ["PD03.workers-restarted"]
# stratum = "twins"
# domain = "sourdough starters"
# ///
"""Bakery laboratory: from the first hours of a sourdough starter's jar sensors to the time and height of its peak.

python levain_rise.py --epochs 30
"""

import argparse
import time

import lightning as L
import numpy as np
import torch
import torch.nn as nn
from lightning.pytorch.callbacks import Callback, LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger
from scipy.signal import savgol_filter
from torch.utils.data import DataLoader, Dataset
from torchmetrics import MetricCollection
from torchmetrics.regression import MeanAbsoluteError, R2Score

MINUTES = 240
FLOURS = {"rye": 1.25, "whole wheat": 1.1, "white": 0.9, "spelt": 1.0, "einkorn": 0.8}


def ferment(count, seed):
    """Raw sensor logs of jars: height (mm), CO2 (%), pH, temperature; one value a minute."""
    rng = np.random.default_rng(seed)
    t = np.arange(MINUTES) / 60.0
    jars, targets = [], []
    for _ in range(count):
        vigour = rng.choice(list(FLOURS.values())) * rng.uniform(0.75, 1.25)
        warm = rng.uniform(19, 30)
        pace = vigour * 2 ** ((warm - 25) / 8)
        lag = rng.uniform(0.4, 1.6) / pace
        top = 30 + 55 * vigour * rng.uniform(0.8, 1.1)
        peak = lag + 4.6 / pace
        height = 30 + (top - 30) / (1 + np.exp(-2.2 * pace * (t - lag - 2.0 / pace)))
        co2 = 0.04 + 4.0 * vigour / (1 + np.exp(-1.8 * pace * (t - lag - 1.4 / pace)))
        ph = 4.9 - 0.9 / (1 + np.exp(-1.2 * pace * (t - lag - 2.5 / pace)))
        temp = warm + 0.6 * np.sin(2 * np.pi * (t / 3 + rng.random()))
        clean = np.stack([height, co2, ph, temp])
        jars.append(clean + rng.normal(0, 1, clean.shape) * np.array([[1.2], [0.15], [0.04], [0.2]]))
        targets.append([peak, (top - 30) / 30])
    return np.stack(jars), np.array(targets, dtype=np.float32)


class JarLogs(Dataset):
    """One jar a row: smoothed, with the slope of each sensor, cut to the hours that have been seen."""

    def __init__(self, jars, targets, train):
        self.jars = jars
        self.targets = torch.from_numpy(targets)
        self.train = train
        self.scale = np.array([[60.0], [3.0], [4.5], [25.0]])

    def __len__(self):
        return len(self.jars)

    def __getitem__(self, i):
        raw = self.jars[i] / self.scale
        if self.train:
            raw = raw + np.random.normal(0, 0.01, raw.shape)
        smooth = savgol_filter(raw, 21, 2, axis=1)
        slope = savgol_filter(raw, 31, 2, deriv=1, axis=1) * 20
        x = np.concatenate([smooth - 1, slope])
        seen = MINUTES if not self.train else np.random.randint(150, MINUTES + 1)
        x[:, seen:] = 0
        return torch.from_numpy(x[:, ::2].astype(np.float32)), self.targets[i]


class StarterData(L.LightningDataModule):
    def __init__(self, jars=224, held=128, batch_size=16, workers=0):
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage=None):
        self.train = JarLogs(*ferment(self.hparams.jars, 5), train=True)
        self.held = JarLogs(*ferment(self.hparams.held, 6), train=False)

    def train_dataloader(self):
        return DataLoader(
            self.train,
            batch_size=self.hparams.batch_size,
            shuffle=True,
            drop_last=True,
            num_workers=self.hparams.workers,  # here
        )

    def val_dataloader(self):
        return DataLoader(
            self.held,
            batch_size=32,
            num_workers=self.hparams.workers,  # here
        )


class RiseNet(L.LightningModule):
    def __init__(self, width=48, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.stem = nn.Sequential(
            nn.Conv1d(8, width, 7, stride=2, padding=3),
            nn.BatchNorm1d(width),
            nn.GELU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2),
            nn.BatchNorm1d(width),
            nn.GELU(),
        )
        self.gru = nn.GRU(width, width, batch_first=True)
        self.head = nn.Sequential(nn.Linear(2 * width, width), nn.GELU(), nn.Dropout(0.1), nn.Linear(width, 2))
        self.loss = nn.SmoothL1Loss()
        self.scores = MetricCollection({"mae": MeanAbsoluteError(num_outputs=2), "r2": R2Score()}, prefix="val/")

    def forward(self, x):
        h = self.stem(x).transpose(1, 2)
        out, last = self.gru(h)
        return self.head(torch.cat([last[-1], out.mean(dim=1)], dim=1))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = self.loss(self(x), y)
        self.log("train/loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.scores.update(self(x), y)

    def on_validation_epoch_end(self):
        got = self.scores.compute()
        self.log("val/mae_peak_hours", got["val/mae"][0])
        self.log("val/r2", got["val/r2"])
        self.scores.reset()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.trainer.max_epochs)
        return [optimizer], [schedule]


class Stopwatch(Callback):
    began = None

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.began = self.began or time.perf_counter()

    def on_train_end(self, trainer, pl_module):
        self.took = time.perf_counter() - self.began


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=30)
    p.add_argument("--jars", type=int, default=224)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--workers", type=int, default=4)  # sick here
    p.add_argument("--workers", type=int, default=0)  # well
    args = p.parse_args()
    L.seed_everything(13)
    watch = Stopwatch()
    trainer = L.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        logger=CSVLogger("starter_logs"),
        callbacks=[LearningRateMonitor("epoch"), watch],
        gradient_clip_val=1.0,
        log_every_n_steps=20,
        num_sanity_val_steps=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    data = StarterData(jars=args.jars, batch_size=args.batch_size, workers=args.workers)
    trainer.fit(RiseNet(), datamodule=data)
    print({k: round(float(v), 4) for k, v in trainer.callback_metrics.items()})
    rate = trainer.global_step * args.batch_size / watch.took
    print(f"{rate:.1f} samples/s")


if __name__ == "__main__":
    main()
