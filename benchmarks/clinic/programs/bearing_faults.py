# /// clinic
# expect = ["PD03.lost-by-workers", "PD03.samples-made-again"]
# stratum = "twins"
# domain = "machine vibration / predictive maintenance (Lightning)"
# ///
"""Classify bearing faults of pumps from accelerometer recordings (log-mel spectrograms + small CNN, Lightning)."""

import time
import zlib

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from scipy import signal
from torch import nn
from torch.utils.data import DataLoader, Dataset


RATE, TARGET_RATE, SECONDS = 25_600, 16_000, 1.0
FAULTS = ("healthy", "inner race", "outer race", "ball", "cage")


def record_pumps(count, seed):
    """Recordings as the logger stores them: deflated 16-bit samples at 25.6 kHz."""
    rng = np.random.default_rng(seed)
    clock = np.arange(int(RATE * SECONDS), dtype=np.float32) / RATE
    noise = rng.standard_normal(4 * len(clock)).astype(np.float32)
    recordings = []
    for _ in range(count):
        fault = int(rng.integers(len(FAULTS)))
        shaft = rng.uniform(23, 31)
        start = rng.integers(3 * len(clock))
        wave = 0.4 * np.sin(2 * np.pi * shaft * clock) + 0.5 * noise[start : start + len(clock)]
        if fault:
            pulses = np.sin(2 * np.pi * shaft * (1.7 + 0.9 * fault) * clock) > 0.97
            wave += 0.9 * pulses * np.sin(2 * np.pi * (1800 + 700 * fault) * clock)
        stored = zlib.compress((wave * 6000).astype(np.int16).tobytes(), level=1)
        recordings.append((stored, fault))
    return recordings


def mel_matrix(bands, bins, rate):
    top = 2595 * np.log10(1 + rate / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, bands + 2) / 2595) - 1)
    freqs = np.linspace(0, rate / 2, bins)
    rise = (freqs - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    fall = (edges[2:, None] - freqs) / (edges[2:] - edges[1:-1])[:, None]
    return np.clip(np.minimum(rise, fall), 0, None).astype(np.float32)


class Recordings(Dataset):
    def __init__(self, recordings, bands=48, window=512, hop=320):
        self.recordings = recordings
        self.window, self.hop = window, hop
        self.mel = torch.from_numpy(mel_matrix(bands, window // 2 + 1, TARGET_RATE))
        self.band = signal.butter(4, (1500, 6000), "bandpass", fs=TARGET_RATE, output="sos")
        self.features = {}

    def __len__(self):
        return len(self.recordings)

    def __getitem__(self, index):
        if index not in self.features:
            self.features[index] = self.spectrograms(self.recordings[index][0])  # here
        return self.features[index], self.recordings[index][1]

    def spectrograms(self, stored):
        """Log-mel spectrograms of the vibration and of its envelope in the resonance band."""
        wave = np.frombuffer(zlib.decompress(stored), dtype=np.int16).astype(np.float32) / 32768
        wave = signal.resample_poly(wave, 5, 8)
        envelope = np.abs(signal.hilbert(signal.sosfiltfilt(self.band, wave)))
        return torch.stack([self.log_mel(wave), self.log_mel(envelope - envelope.mean())])

    def log_mel(self, wave):
        _, _, spectrum = signal.stft(wave, TARGET_RATE, nperseg=self.window, noverlap=self.window - self.hop)
        power = torch.from_numpy(spectrum.astype(np.complex64)).abs() ** 2
        logs = torch.log(self.mel @ power + 1e-8)
        return (logs - logs.mean()) / logs.std()


class Pumps(L.LightningDataModule):
    def __init__(self, batch_size):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage):
        self.train_set = Recordings(record_pumps(960, seed=1))
        self.val_set = Recordings(record_pumps(96, seed=2))

    def train_dataloader(self):
        return DataLoader(self.train_set, self.batch_size, shuffle=True, drop_last=True, num_workers=1)  # sick here
        return DataLoader(  # well
            self.train_set,  # well
            self.batch_size,  # well
            shuffle=True,  # well
            drop_last=True,  # well
            num_workers=1,  # well
            persistent_workers=True,  # well
        )  # well

    def val_dataloader(self):
        return DataLoader(self.val_set, self.batch_size)


def block(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)
    )


class FaultClassifier(L.LightningModule):
    def __init__(self, width=32, lr=2e-3):
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(
            block(2, width),
            block(width, 2 * width),
            block(2 * width, 4 * width),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Dropout(0.2),
            nn.Linear(4 * width, len(FAULTS)),
        )

    def forward(self, spectrograms):
        return self.net(spectrograms)

    def training_step(self, batch, batch_idx):
        spectrograms, faults = batch
        loss = F.cross_entropy(self(spectrograms), faults)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        spectrograms, faults = batch
        hits = (self(spectrograms).argmax(1) == faults).float().mean()
        self.log("val_accuracy", hits, batch_size=len(faults))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr, weight_decay=1e-2)


class Report(L.Callback):
    def on_train_epoch_start(self, trainer, module):
        self.start = time.perf_counter()

    def on_train_epoch_end(self, trainer, module):
        got = {name: round(value.item(), 3) for name, value in trainer.callback_metrics.items()}
        print(f"epoch {trainer.current_epoch}: {got} in {time.perf_counter() - self.start:.1f} s", flush=True)


def main():
    L.seed_everything(11)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=6,
        callbacks=[Report()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(FaultClassifier(), datamodule=Pumps(batch_size=16))


if __name__ == "__main__":
    main()
