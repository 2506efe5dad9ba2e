# /// clinic
# expect = ["PD03.part-made-again"]
# stratum = "twins"
# domain = "quarry blasts"
# ///
"""Discrimination of quarry blasts, tectonic micro-earthquakes and cultural noise at a local three-component network.

The catalogue is synthetic: blasts have an emergent P wave, a weak S wave and a low-frequency surface wave (Rg) with
ripple-fire banding; micro-earthquakes have an impulsive P and a strong S; noise windows hold machinery and traffic.
"""

import argparse
import time

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback, LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger
from scipy import signal
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

RATE = 100.0
SAMPLES = 4000
CLASSES = ("blast", "quake", "noise")
BANDPASS = signal.butter(4, (1.0, 25.0), btype="bandpass", fs=RATE, output="sos")


def synthetic_catalogue(events, seed):
    """Three-component windows of 40 s, the origin 5-15 s after the beginning of the window."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, len(CLASSES), events)
    waves = rng.standard_normal((events, 3, SAMPLES), dtype=np.float32)
    waves[:, :, 1:] += 0.7 * waves[:, :, :-1]
    times = np.arange(SAMPLES, dtype=np.float32) / RATE
    for wave, label in zip(waves, labels):
        origin, distance = rng.uniform(5, 15), rng.uniform(8, 70)
        p, s, rg = origin + distance / 6.0, origin + distance / 3.4, origin + distance / 2.2
        if label == 2:
            hum = rng.uniform(3, 20)
            wave += 0.6 * np.sin(2 * np.pi * hum * times + rng.uniform(0, 6))
            continue
        strength = rng.uniform(1.5, 4.0)
        if label == 0:
            arrivals = ((p, 1.0, 2.0, 12.0), (s, 0.4, 2.5, 8.0), (rg, 1.2, 3.0, 1.5))
        else:
            arrivals = ((p, 1.0, 1.2, 16.0), (s, 1.8, 2.2, 11.0))
        for arrival, size, decay, frequency in arrivals:
            since = np.clip(times - arrival, 0, None)
            shape = since * np.exp(-since / decay) * np.sin(2 * np.pi * frequency * since)
            if label == 0:
                shape *= 1 + 0.5 * np.cos(2 * np.pi * since / 0.35)
            wave += strength * size * shape * rng.uniform(0.5, 1.0, (3, 1)).astype(np.float32)
        wave += rng.normal(0, 0.3, (3, 1)).astype(np.float32)
    return waves, labels.astype(np.int64)


def spectral_image(wave):
    """Band-passed, tapered window as log spectrograms of the three components: (3, 64, 61)."""
    wave = signal.detrend(wave, axis=-1)
    wave = wave * signal.windows.tukey(wave.shape[-1], 0.05)
    wave = signal.sosfiltfilt(BANDPASS, wave, axis=-1)
    _, _, power = signal.spectrogram(wave, fs=RATE, window="hann", nperseg=128, noverlap=64, mode="psd")
    image = np.log10(power[:, 1:65] + 1e-8)
    image = (image - image.mean()) / (image.std() + 1e-6)
    return torch.from_numpy(image.astype(np.float32))


class EventWindows(Dataset):
    def __init__(self, waves, labels, train):
        self.waves, self.labels, self.train = waves, torch.from_numpy(labels), train
        self.images = [spectral_image(wave) for wave in waves]  # well

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = spectral_image(self.waves[index])  # sick here
        image = self.images[index]  # well
        if self.train:
            image = image.roll(int(torch.randint(-6, 7, ())), dims=-1)
        return image, self.labels[index]


class NetworkData(L.LightningDataModule):
    def __init__(self, events, batch_size, seed):
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage):
        waves, labels = synthetic_catalogue(self.hparams.events, self.hparams.seed)
        cut = int(0.85 * len(waves))
        self.train_set = EventWindows(waves[:cut], labels[:cut], train=True)
        self.val_set = EventWindows(waves[cut:], labels[cut:], train=False)

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.hparams.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=2 * self.hparams.batch_size)


class BlastNet(L.LightningModule):
    def __init__(self, width=20, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        sizes = (3, width, 2 * width, 4 * width)
        blocks = []
        for i, o in zip(sizes[:-1], sizes[1:]):
            blocks += [nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.GELU(), nn.MaxPool2d(2)]
        self.features = nn.Sequential(*blocks)
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.Linear(4 * width, len(CLASSES)))
        self.val_accuracy = MulticlassAccuracy(num_classes=len(CLASSES))
        self.val_f1 = MulticlassF1Score(num_classes=len(CLASSES))

    def forward(self, images):
        return self.head(F.adaptive_avg_pool2d(self.features(images), 1))

    def training_step(self, batch, batch_idx):
        images, labels = batch
        loss = F.cross_entropy(self(images), labels, label_smoothing=0.05)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        images, labels = batch
        logits = self(images)
        self.val_accuracy(logits, labels)
        self.val_f1(logits, labels)
        self.log("val_loss", F.cross_entropy(logits, labels))
        self.log_dict({"val_accuracy": self.val_accuracy, "val_f1": self.val_f1})

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=self.trainer.max_epochs)]


class Throughput(Callback):
    def on_train_start(self, trainer, module):
        self.began, self.events = time.perf_counter(), 0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.events += len(batch[1])

    def on_train_end(self, trainer, module):
        self.rate = self.events / (time.perf_counter() - self.began)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1400)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--width", type=int, default=20)
    parser.add_argument("--seed", type=int, default=3)
    args = parser.parse_args()

    L.seed_everything(args.seed)
    throughput = Throughput()
    trainer = L.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        logger=CSVLogger("runs", name="quarry_blasts"),
        callbacks=[throughput, LearningRateMonitor("epoch")],
        enable_progress_bar=False,
        num_sanity_val_steps=0,
        log_every_n_steps=20,
    )
    model = BlastNet(width=args.width)
    trainer.fit(model, datamodule=NetworkData(args.events, args.batch_size, args.seed))
    print({key: round(float(value), 3) for key, value in trainer.callback_metrics.items()})
    print(f"{throughput.rate:.1f} windows/s")


if __name__ == "__main__":
    main()
