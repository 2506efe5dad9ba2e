# /// clinic
# expect = ["PD08.memory-trimmed"]
# stratum = "twins"
# domain = "methane flux of a raised peat bog from chamber and weather readings"
# ///
"""Methane flux of a raised bog from chamber and weather readings (Lightning)."""

import ctypes
import os
import time
import warnings

import lightning.pytorch as pl
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")

READINGS = 24
PAGE = os.sysconf("SC_PAGE_SIZE")


class ChamberReadings(Dataset):
    """Half-hourly chamber readings; whole batches are gathered at once."""

    def __init__(self, rows, seed):
        gen = torch.Generator().manual_seed(seed)
        x = torch.randn(rows, READINGS, generator=gen)
        water, peat_temp, air, pressure = x[:, 0], x[:, 1], x[:, 2], x[:, 3]
        sedge = torch.sigmoid(x[:, 4] + 0.5 * x[:, 5])
        ebullition = F.softplus(-2.0 * pressure + 0.7 * water) * (0.5 + sedge)
        diffusion = torch.exp(0.4 * peat_temp) * torch.sigmoid(2.0 * water)
        plant = sedge * torch.relu(torch.sin(1.5 * air) + 0.5 * peat_temp)
        lagged = 0.2 * (x[:, 6:12] * x[:, 12:18]).sum(1)
        flux = 0.5 * ebullition + diffusion + plant + lagged
        flux = flux + 0.05 * torch.randn(rows, generator=gen)
        self.x = x
        self.y = ((flux - 2.0) / 1.5).unsqueeze(1)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]

    def __getitems__(self, rows):
        rows = torch.tensor(rows)
        return self.x[rows], self.y[rows]


def as_is(batch):
    return batch


class BogData(pl.LightningDataModule):
    def __init__(self, rows=262_144, batch_size=8192):
        super().__init__()
        self.rows, self.batch_size = rows, batch_size

    def setup(self, stage):
        if stage == "fit":
            self.train = ChamberReadings(self.rows, seed=3)
            self.val = ChamberReadings(2 * self.batch_size, seed=4)

    def train_dataloader(self):
        return DataLoader(self.train, self.batch_size, shuffle=True, drop_last=True, collate_fn=as_is)

    def val_dataloader(self):
        return DataLoader(self.val, self.batch_size, collate_fn=as_is)


class ResidualBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, width)
        self.down = nn.Linear(width, width)

    def forward(self, h):
        return h + self.down(F.gelu(self.up(self.norm(h))))


class FluxModel(pl.LightningModule):
    def __init__(self, width=96, depth=2, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Linear(READINGS, width),
            *[ResidualBlock(width) for _ in range(depth)],
            nn.LayerNorm(width),
            nn.Linear(width, 1),
        )

    def training_step(self, batch, batch_idx):
        x, y = batch
        return F.smooth_l1_loss(self.net(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        pred = self.net(x)
        self.log("val_rmse", F.mse_loss(pred, y).sqrt())
        self.log("val_r2", 1 - F.mse_loss(pred, y) / y.var())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        steps = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class HostMemory(pl.Callback):
    """The field server is shared: keep our footprint small and remember its peak."""

    def __init__(self):
        self.libc = ctypes.CDLL("libc.so.6")
        self.peak_mb = 0.0

    @staticmethod
    def resident_mb():
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * PAGE / 2**20

    def note(self):
        self.peak_mb = max(self.peak_mb, self.resident_mb())
        self.libc.malloc_trim(0)  # here

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):  # sick
        self.note()  # sick

    def on_train_epoch_end(self, trainer, module):  # well
        self.note()  # well


class Report(pl.Callback):
    def on_validation_epoch_end(self, trainer, module):
        if trainer.sanity_checking or trainer.current_epoch % 5:
            return
        m = trainer.callback_metrics
        print(f"epoch {trainer.current_epoch:3d}  rmse {m['val_rmse']:.4f}  r2 {m['val_r2']:.4f}", flush=True)


def main():
    pl.seed_everything(20, verbose=False)
    memory = HostMemory()
    trainer = pl.Trainer(
        max_epochs=int(os.environ.get("BOG_EPOCHS", 35)),
        accelerator="cpu",
        devices=1,
        callbacks=[memory, Report()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        gradient_clip_val=1.0,
    )
    start = time.perf_counter()
    trainer.fit(FluxModel(), datamodule=BogData())
    seconds = time.perf_counter() - start
    print(f"peak resident {memory.peak_mb:.0f} MB")
    print(f"training took {seconds:.2f} seconds")


if __name__ == "__main__":
    main()
