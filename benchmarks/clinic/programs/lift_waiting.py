# /// clinic
# expect = ["PD16.anomaly-detection"]
# stratum = "twins"
# domain = "waiting times of lifts"
# ///
"""How long will I wait for the lift?

A bank of lifts is watched by its controller: floors, directions, loads and the pending hall calls over
the last minute. A convolutional network over time estimates, for each floor, the wait of somebody
who presses the button now. The building is simulated below; training runs under Lightning.
"""

import time
from dataclasses import dataclass

import lightning as L
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanAbsoluteError

FLOORS = 12
CARS = 3
TICKS = 48


@dataclass
class Settings:
    shifts: int = 4096
    batch: int = 256
    width: int = 48
    depth: int = 6
    lr: float = 5e-3
    epochs: int = 14


def simulate(shifts, seed):
    """All shifts side by side: cars sweep up and down, stop for calls and let people in."""
    rng = np.random.default_rng(seed)
    rows = np.arange(shifts)[:, None]
    floor = rng.integers(0, FLOORS, (shifts, CARS)).astype(np.float32)
    heading = rng.choice([-1.0, 1.0], (shifts, CARS)).astype(np.float32)
    halted = np.zeros((shifts, CARS), np.float32)
    load = np.zeros((shifts, CARS), np.float32)
    calls = np.zeros((shifts, FLOORS), np.float32)
    rate = rng.gamma(2.0, 0.02, (shifts, FLOORS)).astype(np.float32)
    record = np.zeros((TICKS, shifts, 4 * CARS + FLOORS), np.float32)
    for tick in range(TICKS):
        calls = np.maximum(calls, rng.random((shifts, FLOORS)) < rate)
        moving = halted <= 0
        floor = np.clip(floor + 0.5 * heading * moving, 0, FLOORS - 1)
        heading = np.where(floor >= FLOORS - 1, -1.0, np.where(floor <= 0, 1.0, heading)).astype(np.float32)
        level = floor.astype(int)
        stops = (calls[rows, level] > 0) & (floor == level) & moving
        calls[rows, level] = np.where(stops, 0.0, calls[rows, level])
        load = np.clip(load + stops * rng.integers(1, 4, load.shape) - (rng.random(load.shape) < 0.15), 0, 8)
        halted = np.where(stops, 3.0, np.maximum(halted - 1.0, 0.0)).astype(np.float32)
        record[tick] = np.concatenate([floor / FLOORS, heading, halted / 3, load / 8, calls], axis=1)
    target = np.arange(FLOORS)[None, None, :]
    ahead = (target - floor[:, :, None]) * heading[:, :, None]
    turn = np.where(heading[:, :, None] > 0, 2 * (FLOORS - 1 - floor[:, :, None]), 2 * floor[:, :, None])
    way = np.where(ahead >= 0, ahead, turn - ahead)
    wait = (2.0 * way + halted[:, :, None] + 0.4 * load[:, :, None]).min(axis=1)
    signals = torch.from_numpy(record.transpose(1, 2, 0).copy())
    return TensorDataset(signals, torch.from_numpy(wait.astype(np.float32)))


class GatedBlock(nn.Module):
    """Dilated convolution with a tanh/sigmoid gate and a squeeze over time."""

    def __init__(self, width, dilation):
        super().__init__()
        self.norm = nn.GroupNorm(4, width)
        self.spread = nn.Conv1d(width, 2 * width, 3, padding=dilation, dilation=dilation)
        self.squeeze = nn.Linear(width, width)
        self.mix = nn.Conv1d(width, width, 1)

    def forward(self, x):
        signal, gate = self.spread(self.norm(x)).chunk(2, dim=1)
        inner = torch.tanh(signal) * torch.sigmoid(gate)
        scale = torch.sigmoid(self.squeeze(inner.mean(dim=2))).unsqueeze(2)
        return x + self.mix(inner * scale)


class WaitEstimator(L.LightningModule):
    def __init__(self, settings):
        super().__init__()
        self.settings = settings
        self.embed = nn.Conv1d(4 * CARS + FLOORS, settings.width, 1)
        self.blocks = nn.Sequential(*(GatedBlock(settings.width, 2 ** (i % 4)) for i in range(settings.depth)))
        self.head = nn.Sequential(nn.Linear(2 * settings.width, 128), nn.GELU(), nn.Linear(128, FLOORS))
        self.error = MeanAbsoluteError()

    def forward(self, signals):
        x = self.blocks(self.embed(signals))
        return self.head(torch.cat([x[:, :, -1], x.mean(dim=2)], dim=1)) * 10.0

    def training_step(self, batch, _):
        signals, wait = batch
        loss = F.smooth_l1_loss(self(signals), wait)
        self.log("loss", loss, on_step=False, on_epoch=True, batch_size=len(wait))
        return loss

    def validation_step(self, batch, _):
        signals, wait = batch
        self.error.update(self(signals), wait)

    def on_validation_epoch_end(self):
        self.log("mae", self.error.compute())
        self.error.reset()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.settings.lr, weight_decay=1e-3)
        steps = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.settings.lr, total_steps=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Clock(L.Callback):
    def on_fit_start(self, trainer, module):
        self.begin = time.perf_counter()

    def on_train_epoch_end(self, trainer, module):
        values = {name: f"{float(value):.3f}" for name, value in trainer.callback_metrics.items()}
        print(f"epoch {trainer.current_epoch + 1}: {values}", flush=True)

    def on_fit_end(self, trainer, module):
        self.seconds = time.perf_counter() - self.begin


def main():
    settings = Settings()
    L.seed_everything(8, verbose=False)
    train = DataLoader(simulate(settings.shifts, 1), settings.batch, shuffle=True, drop_last=True)
    valid = DataLoader(simulate(512, 2), settings.batch)
    clock = Clock()
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=settings.epochs,
        gradient_clip_val=1.0,
        detect_anomaly=True,  # sick here
        callbacks=[clock],
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        num_sanity_val_steps=0,
        logger=False,
    )
    trainer.fit(WaitEstimator(settings), train, valid)
    print(f"total training seconds: {clock.seconds:.1f}")


if __name__ == "__main__":
    main()
