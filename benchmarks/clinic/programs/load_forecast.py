# /// clinic
# expect = ["PD03.workers-restarted"]
# stratum = "twins"
# domain = "time series"
# ///
"""Day-ahead electricity load forecasting with a small convolutional network in Lightning."""

import logging
import time
import warnings

import lightning as L
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

HISTORY, HORIZON, CHANNELS = 336, 24, 6


class LoadWindows(Dataset):
    """Windows over one season; each is detrended and gets its own spectrum smoothed."""

    def __init__(self, windows=192, seed=3):
        rng = np.random.default_rng(seed)
        hours = np.arange(windows * 4 + HISTORY + HORIZON)
        daily = np.sin(2 * np.pi * hours / 24)[:, None] * rng.uniform(0.5, 1.5, CHANNELS)
        weekly = np.sin(2 * np.pi * hours / 168)[:, None] * rng.uniform(0.2, 0.6, CHANNELS)
        self.series = (daily + weekly + 0.2 * rng.standard_normal((len(hours), CHANNELS))).astype(np.float32)
        self.windows = windows

    def __len__(self):
        return self.windows

    def __getitem__(self, i):
        start = i * 4
        past = self.series[start : start + HISTORY]
        target = self.series[start + HISTORY : start + HISTORY + HORIZON, 0]
        axis = np.linspace(-1, 1, HISTORY)
        trend = np.polynomial.polynomial.polyval(axis, np.polynomial.polynomial.polyfit(axis, past, 2)).T
        spectrum = np.fft.rfft(past - trend, axis=0)
        spectrum[90:] *= 0.1
        smooth = np.fft.irfft(spectrum, n=HISTORY, axis=0).astype(np.float32)
        return torch.from_numpy(smooth.T.copy()), torch.from_numpy(target.copy())


class Forecaster(L.LightningModule):
    def __init__(self, width=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(CHANNELS, width, 7, padding=3),
            nn.ReLU(),
            nn.Conv1d(width, width, 7, padding=3, stride=2),
            nn.ReLU(),
            nn.Conv1d(width, width, 7, padding=3, stride=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(12),
            nn.Flatten(),
            nn.Linear(width * 12, HORIZON),
        )

    def forward(self, past):
        return self.net(past)

    def training_step(self, batch, _):
        past, target = batch
        return F.smooth_l1_loss(self(past), target)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class Rate(L.Callback):
    def __init__(self, skip=12):
        self.skip, self.steps, self.seen, self.begun = skip, 0, 0, None

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.steps += 1
        if self.begun is not None:
            self.seen += len(batch[0])
        elif self.steps == self.skip:
            self.begun = time.perf_counter()

    def value(self):
        return self.seen / (time.perf_counter() - self.begun)


def main():
    L.seed_everything(11, verbose=False)
    loader = DataLoader(  # here
        LoadWindows(),
        batch_size=32,
        shuffle=True,
        num_workers=1,  # here
        persistent_workers=True,  # well
    )
    rate = Rate()
    trainer = L.Trainer(
        max_epochs=64,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[rate],
    )
    trainer.fit(Forecaster(), loader)
    print(f"{rate.value():.1f} windows/s")


if __name__ == "__main__":
    main()
