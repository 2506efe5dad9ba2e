# /// clinic
# expect = ["PD20.evaluation-too-often"]
# stratum = "twins"
# domain = "stained glass leading"
# ///
"""Stained glass leading: trace the lead cames in photographs of windows.

Small U-Net on 64 x 64 tiles. Target is the leading mask; glass painting (dark strokes that are not lead) is the usual
source of false positives, so the tiles carry plenty of it. Trained with Lightning, as the other conservation models.
"""

import time

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MetricCollection
from torchmetrics.classification import BinaryF1Score, BinaryJaccardIndex

SIDE = 64
HPARAMS = {"width": 16, "lr": 2e-3, "batch": 8, "train_tiles": 384, "val_tiles": 160, "epochs": 4}


def tiles(n, seed):
    """Voronoi panes of coloured glass between lead strips, with painted strokes, grime and uneven light."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:SIDE, 0:SIDE].astype(np.float32)
    images = np.empty((n, 3, SIDE, SIDE), np.float32)
    masks = np.empty((n, 1, SIDE, SIDE), np.float32)
    for k in range(n):
        panes = int(rng.integers(6, 16))
        at = rng.uniform(0, SIDE, (panes, 2, 1, 1)).astype(np.float32)
        away = np.hypot(yy - at[:, 0], xx - at[:, 1])
        near = np.partition(away, 1, axis=0)
        lead = (near[1] - near[0]) < rng.uniform(1.5, 4.5)
        glass = rng.uniform(0.15, 0.95, (panes, 3)).astype(np.float32)[away.argmin(0)]
        light = 0.7 + 0.3 * np.sin(xx / rng.uniform(15, 40) + yy / rng.uniform(15, 40) + rng.uniform(0, 6))
        image = glass * light[..., None]
        for _ in range(int(rng.integers(1, 5))):
            bend = rng.uniform(0, SIDE) + rng.uniform(-0.8, 0.8) * xx + 4 * np.sin(xx / rng.uniform(4, 12))
            image[np.abs(yy - bend) < rng.uniform(0.5, 1.5)] *= rng.uniform(0.2, 0.5)
        image[lead] = 0.12 + 0.06 * rng.random()
        image += rng.normal(0, 0.04, image.shape)
        images[k] = image.transpose(2, 0, 1)
        masks[k, 0] = lead
    return TensorDataset(torch.from_numpy(images), torch.from_numpy(masks))


class Glazing(L.LightningDataModule):
    def __init__(self, hp):
        super().__init__()
        self.hp = hp

    def setup(self, stage=None):
        self.train_set = tiles(self.hp["train_tiles"], seed=1)
        self.val_set = tiles(self.hp["val_tiles"], seed=2)

    def train_dataloader(self):
        return DataLoader(self.train_set, self.hp["batch"], shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, 16)


def pair(c_in, c_out):
    return nn.Sequential(
        nn.Conv2d(c_in, c_out, 3, padding=1, bias=False),
        nn.BatchNorm2d(c_out),
        nn.ReLU(inplace=True),
        nn.Conv2d(c_out, c_out, 3, padding=1, bias=False),
        nn.BatchNorm2d(c_out),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.down1, self.down2, self.floor = pair(3, w), pair(w, 2 * w), pair(2 * w, 4 * w)
        self.lift2, self.lift1 = nn.ConvTranspose2d(4 * w, 2 * w, 2, 2), nn.ConvTranspose2d(2 * w, w, 2, 2)
        self.up2, self.up1 = pair(4 * w, 2 * w), pair(2 * w, w)
        self.out = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.floor(F.max_pool2d(b, 2))
        b = self.up2(torch.cat([self.lift2(c), b], 1))
        a = self.up1(torch.cat([self.lift1(b), a], 1))
        return self.out(a)


class LeadTracer(L.LightningModule):
    def __init__(self, hp):
        super().__init__()
        self.save_hyperparameters(hp)
        self.net = UNet(hp["width"])
        self.scores = MetricCollection({"iou": BinaryJaccardIndex(), "f1": BinaryF1Score()}, prefix="val_")
        self.began = self.ended = None
        self.seen = 0

    def loss(self, logits, mask):
        p = logits.sigmoid()
        dice = 1 - (2 * (p * mask).sum() + 1) / (p.sum() + mask.sum() + 1)
        return F.binary_cross_entropy_with_logits(logits, mask) + dice

    def on_train_batch_start(self, batch, batch_idx):
        if self.began is None:
            self.began = time.perf_counter()

    def training_step(self, batch, batch_idx):
        image, mask = batch
        loss = self.loss(self.net(image), mask)
        self.seen += len(image)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        image, mask = batch
        logits = self.net(image)
        self.log("val_loss", self.loss(logits, mask))
        self.scores.update(logits, mask.int())

    def on_validation_epoch_end(self):
        self.log_dict(self.scores.compute())
        self.scores.reset()

    def on_train_end(self):
        self.ended = time.perf_counter()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.hparams.epochs)
        return [optimizer], [schedule]


if __name__ == "__main__":
    L.seed_everything(8)
    model = LeadTracer(HPARAMS)
    check_every = 0.125  # sick here
    check_every = 1.0  # well
    trainer = L.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=HPARAMS["epochs"],
        val_check_interval=check_every,  # here
        log_every_n_steps=20,
        logger=CSVLogger("logs", name="leading"),
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, datamodule=Glazing(HPARAMS))
    for name, value in sorted(trainer.callback_metrics.items()):
        print(f"{name}: {float(value):.4f}")
    print(f"{model.seen / (model.ended - model.began):.1f} tiles/s")
