# /// clinic
# expect = ["PD07.float64"]
# stratum = "twins"
# domain = "notes of instruments"
# ///
"""Recognises the instrument of a short note from its spectrogram, with Lightning and one self-attention layer."""

import time

import lightning as L
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

RATE, LENGTH, INSTRUMENTS = 8000, 8192, 10


def make_notes(count, seed):
    """Log spectrograms (frames x bins) of notes whose overtones depend on the instrument."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, INSTRUMENTS, count)
    overtones = np.random.default_rng(0).dirichlet(np.ones(6), INSTRUMENTS).astype(np.float32)
    t = np.arange(LENGTH, dtype=np.float32) / RATE
    specs = []
    for chunk in np.array_split(label, max(1, count // 256)):
        pitch = rng.uniform(110, 440, (len(chunk), 1)).astype(np.float32)
        wave = sum(overtones[chunk, k : k + 1] * np.sin(2 * np.pi * (k + 1) * pitch * t) for k in range(6))
        wave = wave * np.exp(-t * rng.uniform(1, 4, (len(chunk), 1)).astype(np.float32))
        wave = wave + 0.05 * rng.standard_normal(wave.shape, dtype=np.float32)
        spec = torch.stft(
            torch.from_numpy(wave), n_fft=254, hop_length=128, window=torch.hann_window(254), return_complex=True
        ).abs()
        specs.append((spec + 1e-3).log().transpose(1, 2).contiguous())
    return TensorDataset(torch.cat(specs), torch.from_numpy(label))


class NoteNet(L.LightningModule):
    def __init__(self, bins=128, width=128, lr=1e-3):
        super().__init__()
        self.lr = lr
        self.norm = nn.LayerNorm(bins)
        self.inp = nn.Sequential(nn.Linear(bins, 2 * width), nn.ReLU(), nn.Linear(2 * width, width), nn.ReLU())
        self.places = nn.Parameter(torch.zeros(LENGTH // 128 + 1, width))
        self.mix = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.out = nn.Linear(width, INSTRUMENTS)

    def forward(self, x):
        states = self.mix(self.inp(self.norm(x)) + self.places)
        return self.out(states.mean(dim=1))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_acc", (self(x).argmax(dim=1) == y).float().mean(), on_epoch=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)


class Meter(L.Callback):
    begin, end, seen = None, None, 0

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if self.begin is None:
            self.begin = time.perf_counter()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.seen += len(batch[0])
        self.end = time.perf_counter()


def main():
    L.seed_everything(5)
    train = DataLoader(make_notes(2560, 1), batch_size=64, shuffle=True, drop_last=True)
    val = DataLoader(make_notes(256, 2), batch_size=128)
    meter = Meter()
    precision = "64-true"  # sick here
    precision = "32-true"  # well
    trainer = L.Trainer(
        max_epochs=3,
        accelerator="cpu",
        devices=1,
        logger=L.pytorch.loggers.CSVLogger("logs"),
        precision=precision,  # here
        log_every_n_steps=20,
        callbacks=[meter],
        enable_progress_bar=False,
        enable_checkpointing=False,
    )
    trainer.fit(NoteNet(), train, val)
    print({k: round(float(v), 3) for k, v in trainer.callback_metrics.items()})
    print(f"{meter.seen / (meter.end - meter.begin):.1f} samples/s")


if __name__ == "__main__":
    main()
