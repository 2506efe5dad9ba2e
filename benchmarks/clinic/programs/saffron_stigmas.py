# /// clinic
# expect = ["PD15.longer-rounds"]
# stratum = "twins"
# domain = "saffron crocus stigmas"
# ///
"""Segmentation of the red stigmas on photographs of opened Crocus sativus flowers (before picking).

Small U-Net in Lightning; the quality that matters to the growers is the pixel-wise average precision of the stigma
class, because the picking arm takes its threshold from the precision-recall curve.
"""

import logging
import time
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanMetric
from torchmetrics.classification import BinaryAveragePrecision

warnings.filterwarnings("ignore", module="lightning")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

SIDE = 64


def draw_flowers(count, generator):
    """Purple tepals around a centre, three curved red stigmas that start there, yellow stamens, soil behind."""
    axis = torch.linspace(-1.0, 1.0, SIDE)
    y, x = torch.meshgrid(axis, axis, indexing="ij")

    def uniform(low, high, *shape):
        return low + (high - low) * torch.rand(*shape, 1, 1, generator=generator)

    dx, dy = x - uniform(-0.2, 0.2, count), y - uniform(-0.2, 0.2, count)
    radius, angle = (dx**2 + dy**2).sqrt(), torch.atan2(dy, dx)
    turn = uniform(0.0, 6.28, count)
    tepals = (radius < 0.65 + 0.15 * torch.cos(6 * (angle - turn))).float()
    soil = 0.25 + 0.1 * torch.rand(count, SIDE, SIDE, generator=generator)
    image = torch.stack([soil * 1.2, soil, soil * 0.8], dim=1)
    purple = torch.tensor([0.55, 0.35, 0.75]).view(1, 3, 1, 1) * uniform(0.8, 1.1, count, 1)
    image = torch.where(tepals.unsqueeze(1) > 0, purple.expand_as(image), image)

    def filaments(number, width, reach):
        mask = torch.zeros(count, SIDE, SIDE)
        start = uniform(0.0, 6.28, count)
        for k in range(number):
            direction = start + 6.28 * k / number + uniform(-0.3, 0.3, count) + uniform(-1.0, 1.0, count) * radius
            gap = torch.atan2(torch.sin(angle - direction), torch.cos(angle - direction)).abs()
            mask = torch.maximum(mask, ((gap * radius < width) & (radius < uniform(*reach, count))).float())
        return mask

    stamens, stigmas = filaments(3, 0.05, (0.2, 0.4)), filaments(3, 0.045, (0.4, 0.75))
    for mask, colour in ((stamens, (0.9, 0.75, 0.2)), (stigmas, (0.8, 0.15, 0.1))):
        image = torch.where(mask.unsqueeze(1) > 0, torch.tensor(colour).view(1, 3, 1, 1).expand_as(image), image)
    shade = uniform(0.7, 1.15, count, 1)
    image = F.avg_pool2d(image * shade, 3, 1, 1) + 0.08 * torch.randn(image.shape, generator=generator)
    return image.clamp(0, 1), stigmas


class FlowerData(L.LightningDataModule):
    def __init__(self, train=160, val=64, batch_size=16):
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage=None):
        generator = torch.Generator().manual_seed(29)
        self.train_set = TensorDataset(*draw_flowers(self.hparams.train, generator))
        self.val_set = TensorDataset(*draw_flowers(self.hparams.val, generator))

    def train_dataloader(self):
        return DataLoader(self.train_set, self.hparams.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, self.hparams.batch_size)


def double_conv(inside, outside):
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(),
        nn.Conv2d(outside, outside, 3, padding=1, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(),
    )


class UNet(nn.Module):
    def __init__(self, base=8, levels=3):
        super().__init__()
        widths = [base * 2**i for i in range(levels)]
        self.down = nn.ModuleList(double_conv(a, b) for a, b in zip([3, *widths], widths))
        self.rise = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in zip(widths, widths[1:]))
        self.merge = nn.ModuleList(double_conv(2 * a, a) for a in widths[:-1])
        self.head = nn.Conv2d(base, 1, 1)

    def forward(self, x):
        kept = []
        for i, level in enumerate(self.down):
            x = level(F.max_pool2d(x, 2) if i else x)
            kept.append(x)
        kept.pop()
        for rise, merge in zip(reversed(self.rise), reversed(self.merge)):
            x = merge(torch.cat([rise(x), kept.pop()], dim=1))
        return self.head(x).squeeze(1)


class StigmaSegmenter(L.LightningModule):
    def __init__(self, lr=3e-3, epochs=24):
        super().__init__()
        self.save_hyperparameters()
        self.net = UNet()
        self.val_loss = MeanMetric()
        self.val_precision = BinaryAveragePrecision()
        self.history = []
        self.seen = 0

    def criterion(self, logits, mask):
        share = torch.sigmoid(logits)
        overlap = 2 * (share * mask).sum(dim=(1, 2)) / (share.sum(dim=(1, 2)) + mask.sum(dim=(1, 2)) + 1.0)
        return F.binary_cross_entropy_with_logits(logits, mask) + 1.0 - overlap.mean()

    def on_train_start(self):
        self.began = time.perf_counter()

    def training_step(self, batch, index):
        image, mask = batch
        self.seen += len(image)
        return self.criterion(self.net(image), mask)

    def validation_step(self, batch, index):
        image, mask = batch
        logits = self.net(image)
        self.val_loss.update(self.criterion(logits, mask))
        self.val_precision.update(logits, mask.long())

    def on_validation_epoch_end(self):
        loss, precision = self.val_loss.compute(), self.val_precision.compute()  # here
        self.log("val/loss", loss)
        self.log("val/average_precision", precision)
        self.history.append((loss.item(), precision.item()))
        self.val_loss.reset()  # well
        self.val_precision.reset()  # well

    def on_train_end(self):
        self.rate = self.seen / (time.perf_counter() - self.began)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.hparams.epochs)
        return {"optimizer": optimizer, "lr_scheduler": schedule}


def main():
    L.seed_everything(29, verbose=False)
    model = StigmaSegmenter()
    trainer = L.Trainer(
        max_epochs=model.hparams.epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(model, FlowerData())
    for epoch, (loss, precision) in enumerate(model.history):
        if epoch % 5 == 0 or epoch == len(model.history) - 1:
            print(f"epoch {epoch:2d} val loss {loss:.4f} average precision {precision:.4f}")
    print(f"{model.rate:.1f} samples/s")


if __name__ == "__main__":
    main()
