# /// clinic
# expect = ["PD13.pinned-process"]
# stratum = "twins"
# domain = "volcanic tremor classification, Lightning"
# ///
"""Tell kinds of volcanic tremor apart from short seismograms, with a small spectrogram transformer."""

import logging
import os
import time
import warnings

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning")

KINDS = ("quiet", "harmonic", "gliding", "spasmodic", "long-period")
SAMPLES = 2048
WINDOW = 128
HOP = 32

TRAINER_CORES, READER_CORES = {0}, {1}  # sick here
TRAINER_CORES, READER_CORES = os.sched_getaffinity(0), os.sched_getaffinity(0)  # well


def place(cores):
    """Give this process its cores of the observatory's machine and one thread for each."""
    os.sched_setaffinity(0, cores)  # here
    torch.set_num_threads(len(cores))  # here


class Seismograms(Dataset):
    """Traces from one station, made once; a spectrogram is cut at each visit."""

    def __init__(self, count, seed):
        random = np.random.default_rng(seed)
        self.kind = random.integers(len(KINDS), size=count)
        t = np.arange(SAMPLES + 256) / 100.0
        self.traces = np.empty((count, len(t)), dtype=np.float32)
        for i, kind in enumerate(self.kind):
            base = random.uniform(1.0, 4.0)
            noise = random.standard_normal(len(t))
            if kind == 1:
                wave = sum(np.sin(2 * np.pi * base * k * t) / k for k in (1, 2, 3))
            elif kind == 2:
                wave = np.sin(2 * np.pi * (base * t + 0.08 * t**2))
            elif kind == 3:
                wave = noise * (np.sin(2 * np.pi * 0.5 * base * t) > 0.3)
            elif kind == 4:
                wave = np.sin(2 * np.pi * base * t) * np.exp(-((t - t[-1] / 2) ** 2) / 4)
            else:
                wave = 0 * t
            self.traces[i] = wave + 0.8 * random.standard_normal(len(t))
        self.window = np.hanning(WINDOW).astype(np.float32)

    def __len__(self):
        return len(self.kind)

    def __getitem__(self, i):
        offset = np.random.randint(256)
        trace = self.traces[i, offset : offset + SAMPLES]
        frames = np.lib.stride_tricks.sliding_window_view(trace, WINDOW)[::HOP] * self.window
        power = np.abs(np.fft.rfft(frames, axis=1)[:, :48]) ** 2
        return np.log1p(power).astype(np.float32), self.kind[i]


class TremorNet(L.LightningModule):
    def __init__(self, width=192, depth=3):
        super().__init__()
        frames = (SAMPLES - WINDOW) // HOP + 1
        self.lift = nn.Linear(48, width)
        self.position = nn.Parameter(0.02 * torch.randn(frames, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, len(KINDS))
        self.recent = []
        self.start = time.monotonic()

    def forward(self, spectrogram):
        hidden = self.encoder(self.lift(spectrogram) + self.position)
        return self.head(hidden.mean(dim=1))

    def training_step(self, batch, number):
        spectrogram, kind = batch
        loss = F.cross_entropy(self(spectrogram), kind)
        self.recent.append(loss.detach())
        return loss

    def on_train_epoch_end(self):
        mean = torch.stack(self.recent).mean()
        self.recent.clear()
        seconds = time.monotonic() - self.start
        print(f"epoch {self.current_epoch}  step {self.global_step:4d}  loss {mean:.4f}  {seconds:5.1f} s", flush=True)

    def validation_step(self, batch, number):
        spectrogram, kind = batch
        self.log("right", (self(spectrogram).argmax(1) == kind).float().mean())

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking:
            print(f"held out: {self.trainer.callback_metrics['right']:.3f} right", flush=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3, weight_decay=0.02)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=1e-3, total_steps=self.trainer.estimated_stepping_batches
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def reader(number):
    os.sched_setaffinity(0, READER_CORES)
    np.random.seed(torch.initial_seed() % 2**32)


def main():
    L.seed_everything(5, verbose=False)
    place(TRAINER_CORES)  # here
    train = DataLoader(
        Seismograms(960, seed=1),
        batch_size=24,
        shuffle=True,
        drop_last=True,
        num_workers=1,
        persistent_workers=True,
        worker_init_fn=reader,
    )
    held_out = DataLoader(Seismograms(128, seed=2), batch_size=64)
    trainer = L.Trainer(
        max_epochs=4,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        check_val_every_n_epoch=4,
        num_sanity_val_steps=0,
    )
    trainer.fit(TremorNet(), train, held_out)


if __name__ == "__main__":
    main()
