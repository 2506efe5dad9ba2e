# /// clinic
# expect = ["PD15.repeated-hooks", "PD15.growing-hooks"]
# stratum = "twins"
# domain = "heron rookery counts"
# ///
"""Count the nests of a heron rookery on aerial pictures by means of a density map (Lightning)."""

import logging
import time
import warnings
from collections import defaultdict

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")

SIDE = 64
SPREAD = 2.0


def draw_rookery(pictures, seed):
    """Pictures [n, 3, SIDE, SIDE] of tree crowns with pale nests, and their density maps [n, 1, SIDE, SIDE]."""
    gen = np.random.default_rng(seed)
    rows, cols = np.mgrid[0:SIDE, 0:SIDE].astype(np.float32)
    images = np.empty((pictures, 3, SIDE, SIDE), dtype=np.float32)
    maps = np.zeros((pictures, 1, SIDE, SIDE), dtype=np.float32)
    for n in range(pictures):
        shade = np.zeros((SIDE, SIDE), dtype=np.float32)
        for _ in range(5):
            r, c, wide = gen.uniform(0, SIDE), gen.uniform(0, SIDE), gen.uniform(6, 14)
            shade += np.exp(-((rows - r) ** 2 + (cols - c) ** 2) / (2 * wide**2))
        picture = np.stack([0.25 + 0.1 * shade, 0.35 + 0.25 * shade, 0.2 + 0.05 * shade])
        for _ in range(gen.poisson(9)):
            r, c = gen.uniform(3, SIDE - 3, 2)
            away = (rows - r) ** 2 + (cols - c) ** 2
            picture += gen.uniform(0.3, 0.6) * np.exp(-away / (2 * gen.uniform(1.0, 1.8) ** 2))
            blob = np.exp(-away / (2 * SPREAD**2))
            maps[n, 0] += blob / blob.sum()
        images[n] = picture + gen.normal(0, 0.05, picture.shape)
    return torch.from_numpy(images), torch.from_numpy(maps)


class RookeryData(L.LightningDataModule):
    def __init__(self, train=384, held=96, batch=16):
        super().__init__()
        self.sizes, self.batch = (train, held), batch

    def setup(self, stage=None):
        self.train_set = TensorDataset(*draw_rookery(self.sizes[0], seed=1))
        self.held_set = TensorDataset(*draw_rookery(self.sizes[1], seed=2))

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.batch, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.held_set, batch_size=2 * self.batch)


def conv_unit(before, after):
    conv = nn.Conv2d(before, after, 3, padding=1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(after), nn.ReLU(inplace=True))


class NestNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.down1 = conv_unit(3, width)
        self.down2 = conv_unit(width, 2 * width)
        self.floor = conv_unit(2 * width, 3 * width)
        self.up2 = conv_unit(5 * width, width)
        self.up1 = conv_unit(2 * width, width // 2)
        self.density = nn.Conv2d(width // 2, 1, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.floor(F.max_pool2d(b, 2))
        b = self.up2(torch.cat([F.interpolate(c, scale_factor=2), b], dim=1))
        return F.softplus(self.density(self.up1(torch.cat([F.interpolate(b, scale_factor=2), a], dim=1))) - 4)


class NestCounter(L.LightningModule):
    def __init__(self, lr=3e-3, scale=100.0):
        super().__init__()
        self.save_hyperparameters()
        self.net = NestNet()
        self.layers = defaultdict(list)
        self.handles = []

    def watch(self, name):
        def note(module, inputs, output):
            with torch.no_grad():
                dead = (output.detach() <= 0).float().mean()
                self.layers[name] = [output.detach().mean(), output.detach().std(), dead]

        return note

    def on_train_epoch_start(self):
        for name, module in self.net.named_children():
            self.handles.append(module.register_forward_hook(self.watch(name)))  # here

    def on_train_epoch_end(self):
        for name, (mean, std, dead) in self.layers.items():
            self.log_dict({f"{name}/mean": mean, f"{name}/std": std, f"{name}/dead": dead})
        for handle in self.handles:  # well
            handle.remove()  # well
        self.handles.clear()  # well

    def training_step(self, batch, n):
        image, density = batch
        guess = self.net(image)
        per_pixel = F.mse_loss(self.hparams.scale * guess, self.hparams.scale * density)
        per_picture = F.l1_loss(guess.sum((1, 2, 3)), density.sum((1, 2, 3)))
        loss = per_pixel + 0.05 * per_picture
        self.log("train/loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, n):
        image, density = batch
        count = self.net(image).sum((1, 2, 3))
        truth = density.sum((1, 2, 3))
        self.log("held/mae", (count - truth).abs().mean(), on_epoch=True)
        self.log("held/bias", (count - truth).mean(), on_epoch=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-3)
        steps = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Stopwatch(L.Callback):
    began = ended = None
    pictures = 0

    def on_train_batch_start(self, trainer, module, batch, n):
        self.began = self.began or time.perf_counter()
        self.pictures += len(batch[0])

    def on_fit_end(self, trainer, module):
        self.ended = time.perf_counter()


if __name__ == "__main__":
    L.seed_everything(7, verbose=False)
    watch = Stopwatch()
    trainer = L.Trainer(
        max_epochs=19,
        accelerator="cpu",
        logger=CSVLogger("logs", name="rookery"),
        log_every_n_steps=10,
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[watch],
    )
    trainer.fit(NestCounter(), datamodule=RookeryData())
    print(f"MAE {trainer.callback_metrics['held/mae']:.2f} nests")
    print(f"{watch.pictures / (watch.ended - watch.began):.1f} pictures/s")
