# /// clinic
# expect = ["PD14"]
# stratum = "twins"
# domain = "energy time series forecasting"
# ///
"""Trains a day-ahead household load forecaster with Lightning."""

import logging
import os
import tempfile
import time
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

HISTORY = 168
HORIZON = 24
CHANNELS = 4
HIDDEN = 1024
BATCH = 192
STEPS = 340
WARMUP = 20

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def household_series(hours, channels):
    t = torch.arange(hours, dtype=torch.float32)
    daily = torch.sin(2 * torch.pi * t / 24)
    weekly = torch.cos(2 * torch.pi * t / 168)
    base = torch.stack([daily * (1 + 0.2 * c) + 0.5 * weekly for c in range(channels)], dim=1)
    return base + 0.1 * torch.randn(hours, channels)


class Windows(Dataset):
    def __init__(self, series, count):
        self.series = series
        self.starts = torch.randint(0, len(series) - HISTORY - HORIZON, (count,)).tolist()

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, i):
        s = self.starts[i]
        return self.series[s : s + HISTORY], self.series[s + HISTORY : s + HISTORY + HORIZON, 0]


class Forecaster(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Flatten(),
            nn.Linear(HISTORY * CHANNELS, HIDDEN),
            nn.GELU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.GELU(),
            nn.Linear(HIDDEN, HORIZON),
        )

    def training_step(self, batch, batch_idx):
        history, target = batch
        return F.smooth_l1_loss(self.net(history), target)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4, fused=True)


class KeepBest(L.Callback):
    def __init__(self, folder, decay=0.998):
        self.path = os.path.join(folder, "best.ckpt")
        self.decay = decay
        self.smooth = None
        self.best = float("inf")

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        loss = outputs["loss"].item()
        self.smooth = loss if self.smooth is None else self.decay * self.smooth + (1 - self.decay) * loss
        if self.smooth < self.best:
            self.best = self.smooth
            trainer.save_checkpoint(self.path)  # sick here
            if trainer.global_step % 100 == 0:  # well
                trainer.save_checkpoint(self.path)  # well


class Throughput(L.Callback):
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.global_step == WARMUP:
            self.start = time.perf_counter()
        elif trainer.global_step == STEPS:
            self.rate = (STEPS - WARMUP) * BATCH / (time.perf_counter() - self.start)


def main():
    L.seed_everything(7, verbose=False)
    data = Windows(household_series(24 * 365, CHANNELS), STEPS * BATCH)
    loader = DataLoader(data, batch_size=BATCH, shuffle=True)
    speed = Throughput()
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(
            max_steps=STEPS,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[KeepBest(folder), speed],
        )
        trainer.fit(Forecaster(), loader)
    print(f"{speed.rate:.1f} samples/s")


if __name__ == "__main__":
    main()
