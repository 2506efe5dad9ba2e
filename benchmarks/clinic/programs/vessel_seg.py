# /// clinic
# expect = ["PD10.repeated-work", "PD20.metrics-in-each-step"]
# stratum = "twins"
# domain = ""
# ///
"""Segment retinal vessels in patches of fundus photographs with a small U-Net, trained by Lightning."""

import time
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MetricCollection
from torchmetrics.classification import BinaryAUROC, BinaryAveragePrecision, BinaryF1Score


warnings.filterwarnings("ignore")

PATCH = 64


def draw_patches(count, seed):
    """Dark curved vessels on a reddish background with uneven light, and their masks."""
    g = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1, 1, PATCH)
    y, x = axis.view(1, PATCH, 1), axis.view(1, 1, PATCH)
    masks = torch.zeros(count, PATCH, PATCH)
    for _ in range(4):
        a, b, c, w = (torch.rand(4, count, 1, 1, generator=g) * 2 - 1).unbind(0)
        distance = (y - a - b * x - 0.4 * torch.sin(4 * c * x)).abs()
        masks = torch.maximum(masks, (distance < 0.04 + 0.03 * w.abs()).float())
    light = 0.6 + 0.2 * (torch.rand(count, 1, 1, generator=g) * x + torch.rand(count, 1, 1, generator=g) * y)
    tint = torch.tensor([0.9, 0.5, 0.3]).view(1, 3, 1, 1)
    images = tint * (light - 0.25 * masks).unsqueeze(1)
    images = images + 0.12 * torch.randn(images.shape, generator=g)
    return images, masks.unsqueeze(1)


class FundusPatches(L.LightningDataModule):
    def __init__(self, train_count=640, val_count=64, batch_size=16):
        super().__init__()
        self.train_count, self.val_count, self.batch_size = train_count, val_count, batch_size

    def setup(self, stage):
        self.train_set = TensorDataset(*draw_patches(self.train_count, 1))
        self.val_set = TensorDataset(*draw_patches(self.val_count, 2))

    def train_dataloader(self):
        return DataLoader(self.train_set, self.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, 2 * self.batch_size)


def double_conv(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.enter = double_conv(3, width)
        self.down1 = double_conv(width, 2 * width)
        self.down2 = double_conv(2 * width, 4 * width)
        self.up1 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.merge1 = double_conv(4 * width, 2 * width)
        self.up2 = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.merge2 = double_conv(2 * width, width)
        self.out = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        a = self.enter(x)
        b = self.down1(F.max_pool2d(a, 2))
        c = self.down2(F.max_pool2d(b, 2))
        b = self.merge1(torch.cat([self.up1(c), b], 1))
        a = self.merge2(torch.cat([self.up2(b), a], 1))
        return self.out(a)


def soft_dice(logits, masks, eps=1.0):
    p = logits.sigmoid()
    overlap = (p * masks).sum((1, 2, 3))
    return 1 - ((2 * overlap + eps) / (p.sum((1, 2, 3)) + masks.sum((1, 2, 3)) + eps)).mean()


class VesselSegmenter(L.LightningModule):
    def __init__(self, width=8, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = UNet(width)
        metrics = MetricCollection({"f1": BinaryF1Score(), "auroc": BinaryAUROC(), "ap": BinaryAveragePrecision()})
        self.train_metrics = metrics.clone(prefix="train/")  # sick here
        self.val_metrics = metrics.clone(prefix="val/")

    def _shared_step(self, batch):
        images, masks = batch
        logits = self.net(images)
        loss = F.binary_cross_entropy_with_logits(logits, masks) + soft_dice(logits, masks)
        return loss, logits.detach().sigmoid().flatten(), masks.flatten().long()

    def training_step(self, batch, batch_idx):
        loss, probabilities, targets = self._shared_step(batch)
        self.log("train/loss", loss, prog_bar=True)
        scores = self.train_metrics(probabilities, targets)  # sick here
        self.log_dict(scores, on_step=True, on_epoch=False)  # sick here
        return loss

    def on_train_epoch_end(self):  # sick
        self.train_metrics.reset()  # sick here

    def validation_step(self, batch, batch_idx):
        loss, probabilities, targets = self._shared_step(batch)
        self.log("val/loss", loss, batch_size=len(batch[0]))
        self.val_metrics.update(probabilities, targets)

    def on_validation_epoch_end(self):
        self.log_dict(self.val_metrics.compute())
        self.val_metrics.reset()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.trainer.estimated_stepping_batches)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Report(L.Callback):
    def on_train_start(self, trainer, module):
        self.started = time.time()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.global_step % 40 == 0:
            print(
                f"step {trainer.global_step} loss {outputs['loss'].item():.4f} {time.time() - self.started:.1f} s",
                flush=True,
            )

    def on_validation_end(self, trainer, module):
        print(
            "  ".join(f"{k} {v:.4f}" for k, v in trainer.callback_metrics.items() if k.startswith("val/")), flush=True
        )


def main():
    L.seed_everything(7, verbose=False)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=6,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        callbacks=[Report()],
    )
    trainer.fit(VesselSegmenter(), datamodule=FundusPatches())


if __name__ == "__main__":
    main()
