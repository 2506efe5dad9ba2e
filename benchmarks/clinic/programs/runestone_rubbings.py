# /// clinic
# expect = ["PD20.logging"]
# stratum = "twins"
# domain = "runestones"
# ///
"""Clean up rubbings of runestones.

A small U-Net gets the photograph of a rubbing (lichen, cracks, uneven charcoal) and gives back the carved line.
"""

import time

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanMetric

SIZE = 48


def carve(count, generator):
    """Staffs with one to three twigs, drawn as soft lines on a SIZE x SIZE stone."""
    grid = torch.linspace(0, 1, SIZE)
    points = torch.stack(torch.meshgrid(grid, grid, indexing="ij"), -1).reshape(1, -1, 2)
    lines = torch.full((count, SIZE * SIZE), 9.0)
    staff = 0.3 + 0.4 * torch.rand(count, generator=generator)
    for part in range(4):
        if part == 0:
            start = torch.stack([torch.full((count,), 0.1), staff], -1)
            end = torch.stack([torch.full((count,), 0.9), staff], -1)
        else:
            start = torch.stack([0.1 + 0.7 * torch.rand(count, generator=generator), staff], -1)
            end = start + torch.rand(count, 2, generator=generator) * 0.5 - 0.25
        along = (end - start)[:, None]
        at = ((points - start[:, None]) * along).sum(-1) / along.square().sum(-1).clamp(min=1e-6)
        nearest = start[:, None] + at.clamp(0, 1)[..., None] * along
        lines = torch.minimum(lines, (points - nearest).norm(dim=-1))
    return torch.sigmoid((0.025 - lines) * 160).view(count, 1, SIZE, SIZE)


def weather(stones, generator):
    count = len(stones)
    lichen = F.interpolate(torch.rand(count, 1, 6, 6, generator=generator), size=(SIZE, SIZE), mode="bilinear")
    grain = torch.randn(stones.shape, generator=generator) * 0.15
    return (stones * (0.35 + 0.65 * lichen) + 0.4 * (1 - lichen) + grain).clamp(0, 1.5)


class RubbingData(L.LightningDataModule):
    def __init__(self, stones=512, held_out=96, batch_size=16):
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage=None):
        generator = torch.Generator().manual_seed(11)
        clean = carve(self.hparams.stones + self.hparams.held_out, generator)
        rubbed = weather(clean, generator)
        cut = self.hparams.stones
        self.train_set = TensorDataset(rubbed[:cut], clean[:cut])
        self.val_set = TensorDataset(rubbed[cut:], clean[cut:])

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.hparams.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=32)


def block(inside, outside):
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(inplace=True),
        nn.Conv2d(outside, outside, 3, padding=1, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(inplace=True),
    )


class RubbingNet(L.LightningModule):
    def __init__(self, width=12, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.down1 = block(1, width)
        self.down2 = block(width, 2 * width)
        self.down3 = block(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.merge2 = block(4 * width, 2 * width)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.merge1 = block(2 * width, width)
        self.out = nn.Conv2d(width, 1, 1)
        self.val_dice = MeanMetric()

    def forward(self, rubbed):
        a = self.down1(rubbed)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.down3(F.max_pool2d(b, 2))
        b = self.merge2(torch.cat([self.up2(c), b], 1))
        a = self.merge1(torch.cat([self.up1(b), a], 1))
        return self.out(a)

    def training_step(self, batch, batch_idx):
        rubbed, clean = batch
        logits = self(rubbed)
        loss = F.binary_cross_entropy_with_logits(logits, clean) + self.dice_loss(logits, clean)
        self.log("train/loss", loss)
        return loss

    @staticmethod
    def dice_loss(logits, clean):
        drawn = logits.sigmoid()
        both = (drawn * clean).sum((1, 2, 3))
        return (1 - (2 * both + 1) / (drawn.sum((1, 2, 3)) + clean.sum((1, 2, 3)) + 1)).mean()

    def on_after_backward(self):
        board = self.logger.experiment
        if self.global_step % 100 != 0:  # well
            return  # well
        for name, weight in self.named_parameters():
            if weight.ndim > 1:
                board.add_histogram(f"gradients/{name}", weight.grad, self.global_step)  # here

    def validation_step(self, batch, batch_idx):
        rubbed, clean = batch
        self.val_dice.update(1 - self.dice_loss(self(rubbed), clean), len(rubbed))

    def on_validation_epoch_end(self):
        self.log("val/dice", self.val_dice.compute())
        self.val_dice.reset()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=self.trainer.max_epochs)
        return [optimizer], [schedule]


class Pace(Callback):
    samples = 0

    def on_train_start(self, trainer, module):
        self.began = time.perf_counter()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.samples += len(batch[0])

    def on_train_end(self, trainer, module):
        self.rate = self.samples / (time.perf_counter() - self.began)


def main():
    L.seed_everything(3)
    pace = Pace()
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=5,
        logger=TensorBoardLogger("boards", name="rubbings"),
        callbacks=[pace, ModelCheckpoint(monitor="val/dice", mode="max")],
        log_every_n_steps=20,
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    net = RubbingNet()
    trainer.fit(net, datamodule=RubbingData())
    print(f"dice on held-out stones {trainer.callback_metrics['val/dice'].item():.3f}")
    print(f"{pace.rate:.1f} samples/s")


if __name__ == "__main__":
    main()
