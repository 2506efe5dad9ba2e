# /// clinic
# expect = ["PD16.anomaly-detection"]
# stratum = "twins"
# domain = "weathervane bearings"
# ///
"""Finds church-tower weathervanes with seized pivots, and the true wind behind them, from a network of vanes.

Each station reports the bearing of its vane and a gust index every ten minutes. A stiff pivot lags and sticks, so a
graph of neighbouring towers tells the wind direction that the vane should have shown.
"""

import time
from typing import NamedTuple

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Sizes(NamedTuple):
    stations: int = 24
    readings: int = 48
    windows: int = 5120
    held_out: int = 640
    batch: int = 32
    epochs: int = 2


def towers(sizes, rng, neighbours=4):
    """Positions of the towers and a row-normalised matrix of nearest neighbours."""
    place = rng.uniform(0, 60, (sizes.stations, 2)).astype(np.float32)
    gap = np.linalg.norm(place[:, None] - place[None], axis=-1)
    weight = np.exp(-gap / 15.0)
    keep = np.argsort(gap, axis=1)[:, 1 : neighbours + 1]
    mask = np.zeros_like(weight)
    np.put_along_axis(mask, keep, 1.0, axis=1)
    weight = weight * mask
    return place, (weight / weight.sum(1, keepdims=True)).astype(np.float32)


def simulate(count, sizes, place, rng):
    s, t = sizes.stations, sizes.readings
    turn = rng.normal(0, 0.12, (count, 1, t)).cumsum(-1) + rng.uniform(0, 2 * np.pi, (count, 1, 1))
    tilt = rng.normal(0, 0.006, (count, 1, 2))
    wind = turn + (place[None] * tilt).sum(-1, keepdims=True) + rng.normal(0, 0.06, (count, s, t))
    gust = np.abs(rng.normal(1.0, 0.4, (count, s, t)))
    stiff = rng.random((count, s)) < 0.25
    shown = np.empty((count, s, t))
    shown[..., 0] = wind[..., 0] + stiff * rng.normal(0, 0.7, (count, s))
    for k in range(1, t):
        away = wind[..., k] - shown[..., k - 1]
        give = np.where(stiff, 0.12 * (gust[..., k] > 1.2), 0.85)
        shown[..., k] = shown[..., k - 1] + give * away
    x = np.stack([np.sin(shown), np.cos(shown), gust], axis=2)
    return tuple(torch.from_numpy(a.astype(np.float32)) for a in (x, wind[..., -1], stiff))


class VaneData(L.LightningDataModule):
    def __init__(self, sizes, seed=1350):
        super().__init__()
        self.sizes = sizes
        rng = np.random.default_rng(seed)
        place, self.weights = towers(sizes, rng)
        self.train = TensorDataset(*simulate(sizes.windows, sizes, place, rng))
        self.held = TensorDataset(*simulate(sizes.held_out, sizes, place, rng))

    def train_dataloader(self):
        return DataLoader(self.train, self.sizes.batch, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.held, 2 * self.sizes.batch)


class Exchange(nn.Module):
    """One round of messages between neighbouring towers with a gated update."""

    def __init__(self, width):
        super().__init__()
        self.message = nn.Linear(width, width)
        self.gate = nn.Linear(2 * width, width)
        self.update = nn.Linear(2 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, h, weights):
        heard = weights @ F.gelu(self.message(h))
        both = torch.cat([h, heard], dim=-1)
        gate = torch.sigmoid(self.gate(both))
        return self.norm(h + gate * torch.tanh(self.update(both)))


class VaneNet(nn.Module):
    def __init__(self, weights, width=64, rounds=3):
        super().__init__()
        self.register_buffer("weights", torch.from_numpy(weights))
        self.trace = nn.Sequential(
            nn.Conv1d(3, 32, 5, padding=2),
            nn.GELU(),
            nn.Conv1d(32, width, 5, stride=2, padding=2),
            nn.GELU(),
            nn.Conv1d(width, width, 3, stride=2, padding=1),
            nn.GELU(),
        )
        self.last = nn.Linear(3, width)
        self.rounds = nn.ModuleList(Exchange(width) for _ in range(rounds))
        self.wind = nn.Linear(width, 2)
        self.certain = nn.Linear(width, 1)
        self.stiff = nn.Linear(width, 1)

    def forward(self, x):
        b, s = x.shape[:2]
        h = self.trace(x.flatten(0, 1)).mean(-1).view(b, s, -1) + self.last(x[..., -1])
        for exchange in self.rounds:
            h = exchange(h, self.weights)
        kappa = F.softplus(self.certain(h)).squeeze(-1) + 1e-3
        return F.normalize(self.wind(h), dim=-1), kappa, self.stiff(h).squeeze(-1)


class VaneTask(L.LightningModule):
    def __init__(self, weights, lr=1e-3):
        super().__init__()
        self.net = VaneNet(weights)
        self.lr = lr

    def losses(self, batch):
        x, wind, stiff = batch
        direction, kappa, logit = self.net(x)
        truth = torch.stack([wind.sin(), wind.cos()], dim=-1)
        agree = (direction * truth).sum(-1)
        von_mises = -(kappa * (agree - 1.0)) + torch.log(torch.special.i0e(kappa))
        seized = F.binary_cross_entropy_with_logits(logit, stiff)
        return von_mises.mean(), seized, agree, logit

    def training_step(self, batch, batch_idx):
        von_mises, seized, _, _ = self.losses(batch)
        return von_mises + seized

    def validation_step(self, batch, batch_idx):
        von_mises, seized, agree, logit = self.losses(batch)
        error = torch.rad2deg(torch.arccos(agree.clamp(-1, 1))).mean()
        right = ((logit > 0) == (batch[2] > 0.5)).float().mean()
        self.log_dict({"val_loss": von_mises + seized, "val_degrees": error, "val_stiff": right})

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr, weight_decay=1e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.trainer.estimated_stepping_batches)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Log(L.Callback):
    """Counts windows, prints the validation of each epoch."""

    def __init__(self):
        self.began, self.ended, self.windows = None, None, 0

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        self.began = self.began or time.perf_counter()
        self.windows += len(batch[0])

    def on_validation_epoch_end(self, trainer, module):
        if self.began:
            shown = {k: round(v.item(), 3) for k, v in trainer.callback_metrics.items()}
            print(f"epoch {trainer.current_epoch}: {shown}")

    def on_train_end(self, trainer, module):
        self.ended = time.perf_counter()


def main():
    L.seed_everything(1350)
    sizes = Sizes()
    data = VaneData(sizes)
    log = Log()
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=sizes.epochs,
        gradient_clip_val=1.0,
        detect_anomaly=True,  # sick here
        callbacks=[log],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(VaneTask(data.weights), datamodule=data)
    rate = log.windows / (log.ended - log.began)
    print(f"{rate:.1f} windows/s")


if __name__ == "__main__":
    main()
