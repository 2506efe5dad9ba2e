# /// clinic
# expect = ["PD03"]
# stratum = "twins"
# domain = "oceanography"
# ///
"""Chlorophyll at the surface from ship casts and the atlas of fields around them."""

import logging
import pathlib
import tempfile
import time

import lightning as L
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FIELDS = ("depth", "sst")
ROWS, COLS = 360, 720
EPOCHS = 8

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def smooth(field, passes):
    for _ in range(passes):
        field = (
            field + np.roll(field, 1, 0) + np.roll(field, 1, 1) + np.roll(field, -1, 0) + np.roll(field, -1, 1)
        ) / 5
    return ((field - field.mean()) / field.std()).astype(np.float32)


def build_atlas(folder, rng):
    """Half-degree fields, as the atlas' distribution file has them."""
    path = pathlib.Path(folder, "atlas.npz")
    np.savez_compressed(
        path,
        depth=smooth(rng.normal(size=(ROWS, COLS)), 12),
        sst=smooth(rng.normal(size=(ROWS, COLS)), 30),
    )
    return path


class Casts(Dataset):
    """A cast: its cell on the grid, a temperature profile of 24 levels and the chlorophyll that was found."""

    def __init__(self, count, atlas, seed):
        rng = np.random.default_rng(seed)
        self.row = rng.integers(0, ROWS, count)
        self.col = rng.integers(0, COLS, count)
        mixed = rng.uniform(2, 20, count)
        levels = np.arange(24)
        surface = atlas["sst"][self.row, self.col]
        self.profile = (surface[:, None] - 1.5 * np.tanh((levels - mixed[:, None]) / 3)).astype(np.float32)
        self.profile += rng.normal(scale=0.1, size=self.profile.shape).astype(np.float32)
        depth = atlas["depth"]
        slope = np.abs(np.roll(depth, 3, 0) - np.roll(depth, -3, 0))[self.row, self.col]
        self.target = (0.8 * slope - 0.5 * surface + 0.05 * mixed + rng.normal(scale=0.05, size=count)).astype(
            np.float32
        )

    def __len__(self):
        return len(self.target)

    def __getitem__(self, i):
        return self.row[i], self.col[i], self.profile[i], self.target[i]


class AroundCast:
    """Puts casts together and cuts the atlas' patch around each."""

    def __init__(self, path, half=8):
        self.atlas = np.load(path)
        self.fields = {name: self.atlas[name] for name in FIELDS}  # well
        self.reach = np.arange(-half, half + 1)

    def __call__(self, casts):
        row, col, profile, target = (np.stack(part) for part in zip(*casts))
        rows = (row[:, None] + self.reach).clip(0, ROWS - 1)[:, :, None]
        cols = ((col[:, None] + self.reach) % COLS)[:, None, :]
        patch = np.stack([self.atlas[name][rows, cols] for name in FIELDS], axis=1)  # sick here
        patch = np.stack([self.fields[name][rows, cols] for name in FIELDS], axis=1)  # well
        return torch.from_numpy(patch), torch.from_numpy(profile), torch.from_numpy(target)


class Casting(L.LightningDataModule):
    def __init__(self, path, batch=48):
        super().__init__()
        with np.load(path) as atlas:
            known = {name: atlas[name] for name in FIELDS}
        self.cruise = Casts(48 * 250, known, seed=1)
        self.held = Casts(48 * 20, known, seed=2)
        self.batch = batch
        self.around = AroundCast(path)

    def train_dataloader(self):
        return DataLoader(self.cruise, self.batch, shuffle=True, collate_fn=self.around, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.held, self.batch, collate_fn=self.around)


class Chlorophyll(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.sea = nn.Sequential(
            nn.Conv2d(len(FIELDS), 32, 3, padding=1),
            nn.GELU(),
            nn.Conv2d(32, 48, 3, padding=1, stride=2),
            nn.GELU(),
            nn.Conv2d(48, 64, 3, padding=1),
            nn.GELU(),
            nn.AdaptiveAvgPool2d(3),
            nn.Flatten(),
        )
        self.water = nn.Sequential(nn.Linear(24, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU())
        self.head = nn.Sequential(nn.Linear(64 * 9 + 128, 128), nn.GELU(), nn.Linear(128, 1))

    def forward(self, patch, profile):
        return self.head(torch.cat([self.sea(patch), self.water(profile)], 1)).squeeze(1)

    def training_step(self, batch, _):
        patch, profile, target = batch
        return nn.functional.mse_loss(self(patch, profile), target)

    def validation_step(self, batch, _):
        patch, profile, target = batch
        self.log("val_mse", nn.functional.mse_loss(self(patch, profile), target), batch_size=len(target))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
        return [optimizer], [schedule]


class Pace(L.Callback):
    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == 5:
            self.since = time.perf_counter()

    def on_train_end(self, trainer, module):
        self.rate = (trainer.global_step - 5) / (time.perf_counter() - self.since)


def main():
    L.seed_everything(7, verbose=False)
    path = build_atlas(tempfile.mkdtemp(prefix="casts"), np.random.default_rng(0))
    pace = Pace()
    trainer = L.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        callbacks=[pace],
    )
    trainer.fit(Chlorophyll(), datamodule=Casting(path))
    print(f"val mse {float(trainer.callback_metrics['val_mse']):.4f}")
    print(f"{pace.rate:.2f} steps/s")


if __name__ == "__main__":
    main()
