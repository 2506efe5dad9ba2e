# /// clinic
# expect = ["PD03"]
# stratum = "twins"
# domain = "fossil pollen slides"
# ///
"""Taxon of single pollen grains on scanned fossil slides (peat core, 40x bright field). Lightning module."""

import time
from dataclasses import dataclass

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback, LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger
from scipy import ndimage
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchmetrics.classification import MulticlassAccuracy

TAXA = ["Alnus", "Betula", "Corylus", "Pinus", "Poaceae", "Quercus", "Tilia"]
FIELD = 256
PATCH = 64


@dataclass
class Plan:
    fields: int = 64
    grains_per_field: int = 9
    batch: int = 24
    epochs: int = 9
    lr: float = 2e-3
    seed: int = 4


def draw_grain(rng, taxon):
    """A grain of the taxon as an absorption stamp: outline, wall, apertures, sculpture."""
    radius = (13, 12, 12, 20, 16, 14, 17)[taxon] + rng.normal(0, 1)
    yy, xx = np.mgrid[-28:29, -28:29].astype(np.float32)
    theta = np.arctan2(yy, xx) + rng.uniform(0, 2 * np.pi)
    apertures = (5, 3, 3, 2, 1, 3, 3)[taxon]
    depth = (0.10, 0.14, 0.05, 0.30, 0.03, 0.08, 0.04)[taxon]
    outline = radius * (1 - depth * np.cos(apertures * theta))
    r = np.hypot(yy, xx)
    body = 1 / (1 + np.exp((r - outline) / 0.8))
    wall = np.exp(-((r - outline + 2) ** 2) / (2, 3, 2, 4, 1, 3, 5)[taxon])
    sculpture = ndimage.gaussian_filter(rng.standard_normal(r.shape), (1.0, 1.2, 1.4, 2.0, 0.8, 1.6, 2.4)[taxon])
    return (0.25 * body + 0.45 * wall + 0.5 * body * sculpture).astype(np.float32)


def scan_slide(rng, plan):
    """Fields of view (uint8) and a table of grains: field, row, column, taxon."""
    fields, grains = [], []
    for f in range(plan.fields):
        debris = ndimage.gaussian_filter(rng.standard_normal((FIELD, FIELD)).astype(np.float32), 3)
        plate = 0.8 + 0.25 * debris
        for _ in range(plan.grains_per_field):
            y, x = rng.integers(PATCH, FIELD - PATCH, 2)
            taxon = int(rng.integers(len(TAXA)))
            plate[y - 28 : y + 29, x - 28 : x + 29] -= 0.6 * draw_grain(rng, taxon)
            grains.append((f, int(y), int(x), taxon))
        fields.append((np.clip(plate, 0, 1) * 255).astype(np.uint8))
    return fields, grains


def around(image, y, x, half):
    return image[y - half : y + half, x - half : x + half]


def mount(image, y, x, angle, focus, stain):
    """Another mount of the same grain: slide turned about (y, x), focus drifted, stain a little stronger or weaker."""
    image = image.astype(np.float32) / 255
    image = ndimage.gaussian_filter(image, focus)
    c, s = np.cos(angle), np.sin(angle)
    turn = np.array([[c, -s], [s, c]])
    centre = np.array([y, x], dtype=np.float64)
    image = ndimage.affine_transform(image, turn, offset=centre - turn @ centre, order=1, mode="nearest")
    return 1 - (1 - image) * stain


class Grains(Dataset):
    def __init__(self, fields, grains, train):
        self.fields, self.grains, self.train = fields, grains, train

    def __len__(self):
        return len(self.grains)

    def __getitem__(self, index):
        f, y, x, taxon = self.grains[index]
        field = self.fields[f]
        if self.train:
            angle = float(torch.rand(()) * 2 * np.pi)
            focus = float(torch.rand(()) * 0.8 + 0.4)
            stain = float(torch.rand(()) * 0.5 + 0.75)
            patch = around(mount(field, y, x, angle, focus, stain), y, x, PATCH // 2)  # sick here
            near = around(field, y, x, 48)  # well
            patch = around(mount(near, 48, 48, angle, focus, stain), 48, 48, PATCH // 2)  # well
        else:
            patch = around(field, y, x, PATCH // 2).astype(np.float32) / 255
        return torch.from_numpy(np.ascontiguousarray(patch, dtype=np.float32))[None], taxon


class Residual(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.a = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.b = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.na, self.nb = nn.BatchNorm2d(cout), nn.BatchNorm2d(cout)
        self.skip = nn.Conv2d(cin, cout, 1, stride, bias=False) if stride > 1 or cin != cout else nn.Identity()

    def forward(self, x):
        y = F.relu(self.na(self.a(x)))
        return F.relu(self.nb(self.b(y)) + self.skip(x))


class PollenNet(L.LightningModule):
    def __init__(self, plan, steps):
        super().__init__()
        self.plan, self.steps = plan, steps
        self.net = nn.Sequential(
            nn.Conv2d(1, 24, 5, 2, 2),
            nn.ReLU(),
            Residual(24, 24, 1),
            Residual(24, 48, 2),
            Residual(48, 96, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Dropout(0.2),
            nn.Linear(96, len(TAXA)),
        )
        self.accuracy = MulticlassAccuracy(len(TAXA))

    def training_step(self, batch, _):
        x, y = batch
        loss = F.cross_entropy(self.net(x - 0.7), y, label_smoothing=0.05)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, _):
        x, y = batch
        self.accuracy(self.net(x - 0.7), y)
        self.log("val_acc", self.accuracy, prog_bar=False)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.plan.lr, weight_decay=0.02)
        sched = torch.optim.lr_scheduler.OneCycleLR(opt, self.plan.lr, total_steps=self.steps)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


class Pace(Callback):
    def on_train_start(self, trainer, module):
        self.began = time.perf_counter()

    def on_validation_epoch_end(self, trainer, module):
        if not trainer.sanity_checking:
            print(f"epoch {trainer.current_epoch} val_acc {float(module.accuracy.compute()):.3f}")

    def on_train_end(self, trainer, module):
        self.took = time.perf_counter() - self.began


def main():
    plan = Plan()
    L.seed_everything(plan.seed)
    fields, grains = scan_slide(np.random.default_rng(plan.seed), plan)
    cut = int(0.88 * len(grains))
    common = dict(batch_size=plan.batch, num_workers=1, persistent_workers=True)
    train = DataLoader(Grains(fields, grains[:cut], True), shuffle=True, drop_last=True, **common)
    held = DataLoader(Grains(fields, grains[cut:], False), **common)
    pace = Pace()
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=plan.epochs,
        callbacks=[pace, LearningRateMonitor("step")],
        log_every_n_steps=10,
        logger=CSVLogger("pollen_runs"),
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(PollenNet(plan, plan.epochs * len(train)), train, held)
    print(f"{plan.epochs * len(train) * plan.batch / pace.took:.1f} grains/s")


if __name__ == "__main__":
    main()
