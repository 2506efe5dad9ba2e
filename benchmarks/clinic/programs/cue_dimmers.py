# /// clinic
# expect = ["PD04.explicit-collect"]
# stratum = "twins"
# domain = "stage lighting"
# allow = ["PD04.explicit-collect"]
# ///
"""Diffusion over lighting cues: dimmer levels of a small rig during a crossfade, conditioned on the scene's mood."""

import gc
import math
import time
from dataclasses import dataclass, field

import lightning as L
import numpy as np
import psutil
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback, LearningRateMonitor
from lightning.pytorch.loggers import TensorBoardLogger
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanMetric

MOODS = ["dawn", "storm", "ballroom", "prison", "forest", "finale"]


@dataclass
class Rig:
    dimmers: int = 48
    frames: int = 96
    cues: int = 960
    held_cues: int = 96
    batch_size: int = 16
    accumulate: int = 4
    epochs: int = 4
    width: int = 64
    timesteps: int = 200
    lr: float = 6e-4
    groups: dict = field(default_factory=lambda: {"front": 16, "side": 12, "back": 12, "cyc": 8})


def program_cues(rig, count, seed):
    """Plays the board operator: each mood has a palette of group levels, cues fade between two looks with a curve."""
    rng = np.random.default_rng(seed)
    palette = np.random.default_rng(99).uniform(0.05, 1.0, (len(MOODS), len(rig.groups)))
    sizes = list(rig.groups.values())
    t = np.linspace(0, 1, rig.frames)
    moods = rng.integers(0, len(MOODS), count)
    cues = np.zeros((count, rig.dimmers, rig.frames), dtype=np.float32)
    for i, mood in enumerate(moods):
        start = np.repeat(palette[rng.integers(len(MOODS))], sizes) * rng.uniform(0.6, 1.0, rig.dimmers)
        goal = np.repeat(palette[mood], sizes) * rng.uniform(0.8, 1.0, rig.dimmers)
        delay = np.repeat(rng.uniform(0, 0.35, len(sizes)), sizes)[:, None]
        fade = np.clip((t[None] - delay) / rng.uniform(0.3, 0.65), 0, 1)
        fade = 0.5 - 0.5 * np.cos(math.pi * fade)
        levels = start[:, None] + (goal - start)[:, None] * fade
        if MOODS[mood] == "storm":
            for flash in rng.uniform(0.1, 0.9, 3):
                levels[-8:] += 0.6 * np.exp(-(((t - flash) / 0.02) ** 2))
        cues[i] = np.clip(levels, 0, 1) * 2 - 1
    return TensorDataset(torch.from_numpy(cues), torch.from_numpy(moods))


class CueData(L.LightningDataModule):
    def __init__(self, rig):
        super().__init__()
        self.rig = rig

    def setup(self, stage=None):
        self.train = program_cues(self.rig, self.rig.cues, 1)
        self.held = program_cues(self.rig, self.rig.held_cues, 2)

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=self.rig.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.held, batch_size=32)


class Block(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.norm = nn.GroupNorm(8, width)
        self.conv = nn.Conv1d(width, 2 * width, 5, padding=2 * dilation, dilation=dilation)
        self.out = nn.Conv1d(width, width, 1)
        self.shift = nn.Linear(width, width)

    def forward(self, x, cond):
        h = self.norm(x) + self.shift(cond)[:, :, None]
        a, b = self.conv(h).chunk(2, dim=1)
        return x + self.out(torch.tanh(a) * torch.sigmoid(b))


class CueDiffusion(L.LightningModule):
    def __init__(self, rig):
        super().__init__()
        self.rig = rig
        w = rig.width
        self.inlet = nn.Conv1d(rig.dimmers, w, 3, padding=1)
        self.mood = nn.Embedding(len(MOODS), w)
        self.clock = nn.Sequential(nn.Linear(32, w), nn.SiLU(), nn.Linear(w, w))
        self.blocks = nn.ModuleList([Block(w, d) for d in (1, 2, 4, 8, 1, 2, 4, 8)])
        self.outlet = nn.Sequential(nn.GroupNorm(8, w), nn.SiLU(), nn.Conv1d(w, rig.dimmers, 3, padding=1))
        s = torch.linspace(0, 1, rig.timesteps + 1)
        alpha = torch.cos((s + 0.008) / 1.008 * math.pi / 2) ** 2
        self.register_buffer("alpha_bar", (alpha / alpha[0])[1:].clamp(1e-4, 0.9999))
        self.register_buffer("freqs", torch.exp(torch.linspace(0, 5, 16)))
        self.held_loss = MeanMetric()

    def forward(self, noisy, step, mood):
        phase = (step.float() / self.rig.timesteps)[:, None] * self.freqs
        cond = self.clock(torch.cat([phase.sin(), phase.cos()], dim=1)) + self.mood(mood)
        x = self.inlet(noisy)
        for block in self.blocks:
            x = block(x, cond)
        return self.outlet(x)

    def denoising_loss(self, batch):
        cue, mood = batch
        step = torch.randint(0, self.rig.timesteps, (len(cue),), device=self.device)
        a = self.alpha_bar[step][:, None, None]
        noise = torch.randn_like(cue)
        return F.mse_loss(self(a.sqrt() * cue + (1 - a).sqrt() * noise, step, mood), noise)

    def training_step(self, batch, batch_idx):
        loss = self.denoising_loss(batch)
        self.log("train/loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.held_loss.update(self.denoising_loss(batch), weight=len(batch[0]))
        self.log("val/loss", self.held_loss, on_epoch=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.rig.lr, weight_decay=1e-3)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=self.rig.lr, total_steps=self.trainer.estimated_stepping_batches
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class HostMemory(Callback):
    """Resident memory of the trainer in the logs; the booth's laptop has little of it."""

    def __init__(self):
        self.process = psutil.Process()

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if (batch_idx + 1) % trainer.accumulate_grad_batches == 0:
            gc.collect()  # sick here
            pl_module.log("host/rss_mb", self.process.memory_info().rss / 2**20)

    def on_train_epoch_end(self, trainer, pl_module):
        gc.collect()


class Stopwatch(Callback):
    began = None

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.began = self.began or time.perf_counter()

    def on_train_end(self, trainer, pl_module):
        self.took = time.perf_counter() - self.began


if __name__ == "__main__":
    L.seed_everything(7)
    rig = Rig()
    watch = Stopwatch()
    trainer = L.Trainer(
        max_epochs=rig.epochs,
        accelerator="cpu",
        accumulate_grad_batches=rig.accumulate,
        gradient_clip_val=1.0,
        logger=TensorBoardLogger("cue_logs", name="diffusion"),
        callbacks=[HostMemory(), LearningRateMonitor("step"), watch],
        log_every_n_steps=5,
        num_sanity_val_steps=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(CueDiffusion(rig), datamodule=CueData(rig))
    print({k: round(float(v), 4) for k, v in trainer.callback_metrics.items()})
    rate = rig.epochs * (rig.cues // rig.batch_size) * rig.batch_size / watch.took
    print(f"{rate:.1f} samples/s")
