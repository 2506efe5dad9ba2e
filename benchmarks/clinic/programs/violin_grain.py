# /// clinic
# expect = ["PD14"]
# stratum = "twins"
# domain = "wood grain of violins"
# ///
"""Wood grain of violin tops: where was the spruce felled, and how wide are its rings?

Each plate is a flat scan of one violin top; the network sees random patches of it, guesses the region of origin and
regresses the ring width. Trains with Lightning, keeps the latest state on disk so that a run can be picked up again.
"""

import time

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, Dataset

REGIONS = ("Val di Fiemme", "Bohemia", "Jura", "Carpathians", "Allgau")
PLATE = 1024
PATCH = 64


def scan_plates(count, size=PLATE):
    """Ring borders run along the plate; each region has its own ring width, contrast and waviness."""
    plates, origin, widths = [], [], []
    for k in range(count):
        region = k % len(REGIONS)
        width = 7.0 + 2.5 * region + 2.0 * torch.rand(1).item()
        rings = torch.cumsum(1.0 / width * (0.7 + 0.6 * torch.rand(size)), 0)
        wave = F.interpolate(torch.randn(1, 1, 12, 5), size=(size, size), mode="bicubic", align_corners=True)[0, 0]
        phase = rings[None, :] + (0.2 + 0.1 * region) * wave
        late_wood = (phase - phase.floor()) ** (3 - 0.3 * region)
        pores = 0.15 * torch.randn(size, size)
        plate = 0.8 - 0.4 * late_wood + pores
        plates.append(((plate - plate.mean()) / plate.std()).numpy())
        origin.append(region)
        widths.append(width)
    return np.stack(plates), np.array(origin), np.array(widths, dtype=np.float32)


class GrainPatches(Dataset):
    def __init__(self, plates, origin, widths, length, seed):
        self.plates, self.origin, self.widths = plates, origin, widths
        draw = torch.Generator().manual_seed(seed)
        self.which = torch.randint(len(plates), (length,), generator=draw).tolist()
        self.corner = torch.randint(PLATE - PATCH, (length, 2), generator=draw).tolist()

    def __len__(self):
        return len(self.which)

    def __getitem__(self, i):
        k, (y, x) = self.which[i], self.corner[i]
        patch = self.plates[k, y : y + PATCH, x : x + PATCH]
        return torch.from_numpy(patch[None].copy()), self.origin[k], self.widths[k]


class Squeeze(nn.Module):
    def __init__(self, channels, ratio=4):
        super().__init__()
        self.gate = nn.Sequential(
            nn.Linear(channels, channels // ratio), nn.ReLU(), nn.Linear(channels // ratio, channels), nn.Sigmoid()
        )

    def forward(self, x):
        return x * self.gate(x.mean((2, 3)))[:, :, None, None]


def block(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(),
        nn.Conv2d(cout, cout, 3, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(),
        Squeeze(cout),
    )


class GrainNet(L.LightningModule):
    def __init__(self, plates, origin, widths, batch_size=32, lr=2e-3, width_weight=0.3, epoch_length=1920):
        super().__init__()
        self.save_hyperparameters(logger=False)  # sick here
        self.save_hyperparameters(ignore=["plates", "origin", "widths"], logger=False)  # well
        self.scans = (plates, origin, widths)
        self.features = nn.Sequential(block(1, 24), block(24, 48), block(48, 96), block(96, 128))
        self.origin_head = nn.Linear(128, len(REGIONS))
        self.width_head = nn.Sequential(nn.Linear(128, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, patch):
        h = self.features(patch).mean((2, 3))
        return self.origin_head(h), self.width_head(h).squeeze(1)

    def training_step(self, batch, batch_idx):
        patch, origin, width = batch
        logits, guess = self(patch)
        loss = F.cross_entropy(logits, origin, label_smoothing=0.05)
        return loss + self.hparams.width_weight * F.smooth_l1_loss(guess, (width - 12) / 4)

    def validation_step(self, batch, batch_idx):
        patch, origin, width = batch
        logits, guess = self(patch)
        self.log("val_acc", (logits.argmax(1) == origin).float().mean(), batch_size=len(patch))
        self.log("val_width_error", (guess * 4 + 12 - width).abs().mean(), batch_size=len(patch))

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking:
            metrics = self.trainer.callback_metrics
            print(f"step {self.global_step}: " + ", ".join(f"{k} {v:.3f}" for k, v in metrics.items()))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-3)
        steps = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def train_dataloader(self):
        patches = GrainPatches(*self.scans, length=self.hparams.epoch_length, seed=1)
        return DataLoader(patches, batch_size=self.hparams.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        patches = GrainPatches(*self.scans, length=256, seed=2)
        return DataLoader(patches, batch_size=64)


class Pace(Callback):
    def __init__(self):
        self.patches, self.start, self.elapsed = 0, None, None

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if self.start is None:
            self.start = time.perf_counter()
        self.patches += len(batch[0])

    def on_train_end(self, trainer, pl_module):
        self.elapsed = time.perf_counter() - self.start

    @property
    def rate(self):
        return self.patches / self.elapsed


def main():
    L.seed_everything(1721)
    model = GrainNet(*scan_plates(16))
    pace = Pace()
    keep = ModelCheckpoint(dirpath="runs/grain", filename="grain-{step}", every_n_train_steps=20, save_top_k=1)
    trainer = L.Trainer(
        max_epochs=4,
        accelerator="cpu",
        devices=1,
        logger=False,
        callbacks=[keep, pace],
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model)
    print("latest state in", keep.best_model_path)
    print(f"{pace.rate:.1f} patches/s")


if __name__ == "__main__":
    main()
