# /// clinic
# expect = ["PD20.logging"]
# stratum = "twins"
# domain = "badminton rallies"
# ///
"""Who wins the rally? Shuttle and player tracks of a badminton rally -> winner and type of the last stroke.

Tracks are made up from a simple rally simulator; the network is a small MLP-mixer over time.
"""

import time

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.utilities import grad_norm
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STROKES = ("clear", "drop", "smash", "drive", "net", "lift", "push", "block")
FRAMES, CHANNELS = 48, 10
HPARAMS = dict(width=48, depth=12, lr=1.5e-3, weight_decay=0.02, batch_size=32, max_epochs=4, seed=21)


def simulate(n, seed):
    """x, y, z of the shuttle, x, y of both players, racket speeds and a hit flag for each frame."""
    rng = np.random.default_rng(seed)
    t = np.arange(FRAMES)
    period = rng.integers(9, 16, size=(n, 1))
    phase = rng.integers(0, 9, size=(n, 1))
    beat = (t + phase) % period / period
    side = np.where(((t + phase) // period) % 2 == 0, 1.0, -1.0)
    style = rng.integers(0, len(STROKES), size=(n, 1))
    height = 1 + (1 + style % 4) * np.sin(np.pi * beat)
    shuttle_y = side * (1 - 2 * beat) * (4 + style / 2)
    shuttle_x = np.cumsum(rng.normal(scale=0.2, size=(n, FRAMES)), axis=1)
    lag = rng.uniform(0.3, 1.0, size=(n, 2, 1))
    ax, bx = shuttle_x * lag[:, 0], shuttle_x * lag[:, 1]
    ay, by = -3 + 0.2 * height, 3 - 0.2 * height
    speed_a, speed_b = np.exp(-8 * beat) * (side > 0), np.exp(-8 * beat) * (side < 0)
    hit = (beat < 0.08).astype(float)
    x = np.stack([shuttle_x, shuttle_y, height, ax, ay, bx, by, speed_a, speed_b, hit], axis=1)
    x += rng.normal(scale=0.1, size=x.shape)
    winner = (lag[:, 0, 0] + 0.1 * rng.normal(size=n) > lag[:, 1, 0]).astype(np.int64)
    return TensorDataset(
        torch.from_numpy(x.astype(np.float32)), torch.from_numpy(winner), torch.from_numpy(style[:, 0].astype(np.int64))
    )


class RallyData(L.LightningDataModule):
    def __init__(self, batch_size, seed):
        super().__init__()
        self.batch_size, self.seed = batch_size, seed

    def setup(self, stage=None):
        self.train, self.valid = simulate(3200, self.seed), simulate(512, self.seed + 1)

    def train_dataloader(self):
        return DataLoader(self.train, self.batch_size, shuffle=True, num_workers=0)

    def val_dataloader(self):
        return DataLoader(self.valid, 128, num_workers=0)


class MixerBlock(nn.Module):
    def __init__(self, width, frames):
        super().__init__()
        self.norm_time, self.time = nn.LayerNorm(width), nn.Linear(frames, frames)
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        x = x + self.time(self.norm_time(x).transpose(1, 2)).transpose(1, 2)
        return x + self.down(F.gelu(self.up(self.norm(x))))


class RallyNet(L.LightningModule):
    def __init__(self, width, depth, lr, weight_decay, **_):
        super().__init__()
        self.save_hyperparameters()
        self.stem = nn.Conv1d(CHANNELS, width, 4, stride=2, padding=1)
        self.blocks = nn.Sequential(*[MixerBlock(width, FRAMES // 2) for _ in range(depth)])
        self.pool = nn.Linear(width, 1)
        self.winner = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2))
        self.stroke = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, len(STROKES)))

    def forward(self, x):
        h = self.blocks(self.stem(x).transpose(1, 2))
        h = (self.pool(h).softmax(1) * h).sum(1)
        return self.winner(h), self.stroke(h)

    def step(self, batch):
        x, winner, stroke = batch
        to_win, to_stroke = self(x)
        loss = F.cross_entropy(to_win, winner) + 0.5 * F.cross_entropy(to_stroke, stroke)
        return loss, (to_win.argmax(1) == winner).float().mean(), (to_stroke.argmax(1) == stroke).float().mean()

    def training_step(self, batch, _):
        loss, winner, stroke = self.step(batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, _):
        loss, winner, stroke = self.step(batch)
        self.log_dict({"val_loss": loss, "val_winner": winner, "val_stroke": stroke}, on_epoch=True)

    def on_before_optimizer_step(self, optimizer):
        self.log_dict(grad_norm(self, norm_type=2))  # sick here
        if (self.global_step + 1) % self.trainer.log_every_n_steps == 0:  # well
            self.log_dict(grad_norm(self, norm_type=2))  # well

    def configure_optimizers(self):
        decay = self.hparams.weight_decay
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=decay, fused=True)
        total = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Stopwatch(L.Callback):
    def __init__(self):
        self.rallies = 0

    def on_train_start(self, trainer, module):
        self.began = time.perf_counter()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.rallies += len(batch[0])

    def on_validation_epoch_end(self, trainer, module):
        m = trainer.callback_metrics
        if "val_winner" in m:
            print(f"epoch {trainer.current_epoch}: winner {m['val_winner']:.3f} stroke {m['val_stroke']:.3f}")

    def on_train_end(self, trainer, module):
        self.rate = self.rallies / (time.perf_counter() - self.began)


if __name__ == "__main__":
    L.seed_everything(HPARAMS["seed"])
    watch = Stopwatch()
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=HPARAMS["max_epochs"],
        logger=CSVLogger("logs", name="rallies"),
        callbacks=[watch, LearningRateMonitor("epoch")],
        log_every_n_steps=50,
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(RallyNet(**HPARAMS), datamodule=RallyData(HPARAMS["batch_size"], HPARAMS["seed"]))
    print(f"{watch.rate:.1f} rallies/s")
