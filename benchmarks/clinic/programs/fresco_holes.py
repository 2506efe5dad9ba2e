# /// clinic
# expect = ["PD20.metrics-in-each-step"]
# stratum = "twins"
# domain = "image inpainting"
# ///
"""Filling holes in pictures of frescoes: a small U-Net with Lightning."""

import time
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.image import PeakSignalNoiseRatio, StructuralSimilarityIndexMeasure

warnings.filterwarnings("ignore", message=".*num_workers.*")
SIDE = 64
LOG_EVERY = 50


def paint(count, seed):
    """Smooth colour fields with bands, three channels in [0, 1]."""
    gen = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, 3, 6, 6, generator=gen)
    field = F.interpolate(coarse, size=(SIDE, SIDE), mode="bicubic", align_corners=False)
    axis = torch.linspace(0, 1, SIDE)
    angle = torch.rand(count, 1, 1, generator=gen) * 3.14159
    wave = torch.sin(24 * (axis[None, :, None] * angle.cos() + axis[None, None, :] * angle.sin()))
    return (field + 0.15 * wave[:, None]).clamp(0, 1)


def random_holes(count):
    """Two rectangular holes in each picture; 1 where the paint is lost."""
    axis = torch.arange(SIDE)
    low = torch.randint(4, SIDE - 28, (count, 2, 2))
    high = low + torch.randint(10, 25, (count, 2, 2))
    inside = (axis >= low[..., None]) & (axis < high[..., None])
    rectangles = inside[:, :, 0, :, None] & inside[:, :, 1, None, :]
    return rectangles.any(1, keepdim=True).float()


class FrescoData(L.LightningDataModule):
    def __init__(self, batch_size=16):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage=None):
        self.train = TensorDataset(paint(2400, seed=1))
        self.valid = TensorDataset(paint(128, seed=2))

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=self.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.valid, batch_size=32)


def double_conv(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.enter = double_conv(4, width)
        self.down1 = double_conv(width, width * 2)
        self.down2 = double_conv(width * 2, width * 4)
        self.up1 = double_conv(width * 6, width * 2)
        self.up2 = double_conv(width * 3, width)
        self.leave = nn.Conv2d(width, 3, 1)

    def forward(self, x):
        a = self.enter(x)
        b = self.down1(F.max_pool2d(a, 2))
        c = self.down2(F.max_pool2d(b, 2))
        b = self.up1(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        a = self.up2(torch.cat([F.interpolate(b, scale_factor=2), a], 1))
        return self.leave(a).sigmoid()


class Inpainter(L.LightningModule):
    def __init__(self, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = UNet()
        self.train_ssim = StructuralSimilarityIndexMeasure(data_range=1.0)
        self.valid_ssim = StructuralSimilarityIndexMeasure(data_range=1.0)
        self.valid_psnr = PeakSignalNoiseRatio(data_range=1.0)

    def forward(self, damaged, holes):
        painted = self.net(torch.cat([damaged, holes], 1))
        return painted, damaged + painted * holes

    def training_step(self, batch, batch_idx):
        (image,) = batch
        holes = random_holes(len(image))
        painted, restored = self(image * (1 - holes), holes)
        error = (painted - image).abs()
        loss = error.mean() + 5 * (error * holes).mean()
        self.log("train_loss", loss)
        self.log("train_ssim", self.train_ssim(restored.detach(), image))  # sick here
        if (self.global_step + 1) % LOG_EVERY == 0:  # well
            self.log("train_ssim", self.train_ssim(restored.detach(), image))  # well
        return loss

    def on_train_epoch_end(self):
        self.train_ssim.reset()

    def on_validation_epoch_start(self):
        self.rng_state = torch.get_rng_state()
        torch.manual_seed(0)

    def validation_step(self, batch, batch_idx):
        (image,) = batch
        holes = random_holes(len(image))
        _, restored = self(image * (1 - holes), holes)
        self.valid_ssim.update(restored, image)
        self.valid_psnr.update(restored, image)
        self.log("valid_ssim", self.valid_ssim)
        self.log("valid_psnr", self.valid_psnr)

    def on_validation_epoch_end(self):
        torch.set_rng_state(self.rng_state)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr, fused=True)


class Rate(L.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.global_step == 5:
            self.start = time.perf_counter()

    def on_train_end(self, trainer, module):
        metrics = trainer.callback_metrics
        print(f"SSIM {metrics['valid_ssim']:.3f}, PSNR {metrics['valid_psnr']:.2f} dB")
        self.rate = (trainer.global_step - 5) / (time.perf_counter() - self.start)


def main():
    L.seed_everything(3)
    rate = Rate()
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=4,
        logger=CSVLogger(".", name="fresco"),
        log_every_n_steps=LOG_EVERY,
        callbacks=[rate],
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(Inpainter(), FrescoData())
    print(f"{rate.rate:.3f} steps/s")


if __name__ == "__main__":
    main()
