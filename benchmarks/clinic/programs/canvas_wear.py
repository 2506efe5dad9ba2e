# /// clinic
# expect = ["PD09.oversized-layer"]
# stratum = "twins"
# domain = "sail canvas wear"
# ///
"""Sail canvas wear: chafe, mildew, UV fading and loft thickness from 64x64 close-ups of the cloth (Lightning)."""

import time

import lightning as L
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanAbsoluteError
from torchmetrics.classification import MultilabelF1Score

SIDE = 64
SIGNS = ("chafe", "mildew", "fading")


class CanvasData(L.LightningDataModule):
    def __init__(self, train_patches=960, val_patches=160, batch_size=16, seed=31):
        super().__init__()
        self.save_hyperparameters()

    def weave(self, rng, n):
        """Warp and weft threads with the three kinds of damage laid over them."""
        axis = np.arange(SIDE, dtype=np.float32)
        yy, xx = np.meshgrid(axis, axis, indexing="ij")
        pitch = rng.uniform(3.0, 6.0, (n, 1, 1)).astype(np.float32)
        cloth = 0.6 + 0.12 * np.sin(2 * np.pi * xx / pitch) + 0.12 * np.sin(2 * np.pi * yy / pitch)
        present = (rng.random((n, len(SIGNS))) < 0.4).astype(np.float32)
        loft = (7.0 - pitch[:, 0, 0]) / 4.0

        angle = rng.uniform(0, np.pi, (n, 1, 1)).astype(np.float32)
        across = (xx - SIDE / 2) * np.cos(angle) + (yy - SIDE / 2) * np.sin(angle)
        chafe = np.exp(-((across / 5.0) ** 2))
        cloth = cloth - 0.3 * present[:, 0, None, None] * chafe
        my, mx = rng.uniform(12, SIDE - 12, (2, n, 1, 1)).astype(np.float32)
        spots = np.exp(-((yy - my) ** 2 + (xx - mx) ** 2) / 60.0)
        cloth = cloth - 0.4 * present[:, 1, None, None] * spots
        cloth = cloth + 0.25 * present[:, 2, None, None] * (yy / SIDE)
        cloth = cloth + rng.normal(0, 0.06, cloth.shape).astype(np.float32)
        parts = cloth[:, None].astype(np.float32), present, loft.astype(np.float32)
        return TensorDataset(*(torch.from_numpy(p) for p in parts))

    def setup(self, stage=None):
        rng = np.random.default_rng(self.hparams.seed)
        self.train_set = self.weave(rng, self.hparams.train_patches)
        self.val_set = self.weave(rng, self.hparams.val_patches)

    def train_dataloader(self):
        return DataLoader(self.train_set, self.hparams.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, 2 * self.hparams.batch_size)


def stage(c_in, c_out):
    return nn.Sequential(
        nn.Conv2d(c_in, c_out, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(c_out),
        nn.ReLU(inplace=True),
    )


class WearNet(L.LightningModule):
    def __init__(self, lr=1e-3, weight_decay=1e-2, loft_weight=0.5, hidden=512):
        super().__init__()
        self.save_hyperparameters()
        self.features = nn.Sequential(
            stage(1, 32),
            nn.MaxPool2d(2),
            stage(32, 64),
            nn.MaxPool2d(2),
            stage(64, 64),
            stage(64, 64),
        )
        self.neck = nn.Sequential(nn.Flatten(), nn.Linear(64 * 16 * 16, hidden), nn.ReLU())  # sick here
        self.neck = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, hidden), nn.ReLU())  # well
        self.drop = nn.Dropout(0.2)
        self.signs = nn.Linear(hidden, len(SIGNS))
        self.loft = nn.Linear(hidden, 1)
        self.val_f1 = MultilabelF1Score(num_labels=len(SIGNS))
        self.val_mae = MeanAbsoluteError()

    def forward(self, x):
        h = self.drop(self.neck(self.features(x)))
        return self.signs(h), self.loft(h).squeeze(1)

    def loss(self, batch):
        x, present, loft = batch
        signs, thickness = self(x)
        wear = F.binary_cross_entropy_with_logits(signs, present)
        return wear + self.hparams.loft_weight * F.smooth_l1_loss(thickness, loft), signs, thickness

    def training_step(self, batch, batch_idx):
        x, present, loft = batch
        if batch_idx % 2:
            x = x.flip(3)
        loss, _, _ = self.loss((x, present, loft))
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        loss, signs, thickness = self.loss(batch)
        self.val_f1.update(signs.sigmoid(), batch[1].int())
        self.val_mae.update(thickness, batch[2])
        self.log("val_loss", loss)

    def on_validation_epoch_end(self):
        self.log_dict({"val_f1": self.val_f1.compute(), "val_mae": self.val_mae.compute()})
        self.val_f1.reset()
        self.val_mae.reset()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=self.hparams.weight_decay)
        steps = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Logbook(L.Callback):
    """Keeps the time under way and one line for each epoch."""

    def __init__(self):
        self.patches = 0
        self.began = self.ended = 0.0

    def on_train_start(self, trainer, module):
        self.began = time.perf_counter()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.patches += len(batch[0])

    def on_train_epoch_end(self, trainer, module):
        seen = {k: round(float(v), 3) for k, v in trainer.callback_metrics.items()}
        print(f"epoch {trainer.current_epoch}: {seen}")

    def on_train_end(self, trainer, module):
        self.ended = time.perf_counter()


def main():
    L.seed_everything(31)
    logbook = Logbook()
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=4,
        callbacks=[logbook],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        gradient_clip_val=5.0,
    )
    trainer.fit(WearNet(), datamodule=CanvasData())
    print(f"{logbook.patches / (logbook.ended - logbook.began):.1f} patches/s")


if __name__ == "__main__":
    main()
