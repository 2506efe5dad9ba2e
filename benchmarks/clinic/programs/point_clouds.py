# /// clinic
# stratum = "placebo"
# domain = "point clouds"
# ///
"""Trains a PointNet classifier on sampled solids with Lightning."""

import logging
import time
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

POINTS = 256
SOLIDS = 4
BATCH = 32
TRAIN, HELD_OUT = 3200, 320
STEPS = 480
WARMUP = 20

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def solids(count, seed):
    gen = torch.Generator().manual_seed(seed)
    kind = torch.randint(0, SOLIDS, (count,), generator=gen)
    p = torch.randn(count, POINTS, 3, generator=gen)
    power = torch.tensor([1.0, 2.0, 4.0, 20.0])[kind][:, None, None]
    p = p / p.abs().pow(power).sum(-1, keepdim=True).pow(1 / power).clamp(min=1e-6)
    return TensorDataset(p + 0.02 * torch.randn(p.shape, generator=gen), kind)


class PointNet(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.point = nn.Sequential(nn.Linear(3, 48), nn.ReLU(), nn.Linear(48, 96), nn.ReLU(), nn.Linear(96, 192))
        self.head = nn.Sequential(nn.Linear(192, 96), nn.ReLU(), nn.Linear(96, SOLIDS))

    def forward(self, points):
        return self.head(self.point(points).amax(dim=1))

    def training_step(self, batch, batch_idx):
        points, kind = batch
        loss = F.cross_entropy(self(points), kind)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        points, kind = batch
        self.log("val_acc", (self(points).argmax(-1) == kind).float().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3, fused=True)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Clock(L.Callback):
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.global_step == WARMUP:
            self.start = time.perf_counter()
        elif trainer.global_step == STEPS:
            self.rate = (STEPS - WARMUP) / (time.perf_counter() - self.start)


def main():
    L.seed_everything(3, verbose=False)
    clock = Clock()
    trainer = L.Trainer(
        max_steps=STEPS,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        check_val_every_n_epoch=2,
        callbacks=[clock],
    )
    trainer.fit(
        PointNet(),
        DataLoader(solids(TRAIN, 1), batch_size=BATCH, shuffle=True),
        DataLoader(solids(HELD_OUT, 2), batch_size=64),
    )
    print(f"{clock.rate:.1f} steps/s")


if __name__ == "__main__":
    main()
