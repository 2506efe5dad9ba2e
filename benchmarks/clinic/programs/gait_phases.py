# /// clinic
# expect = ["PD20.logging"]
# stratum = "twins"
# domain = "wearable sensors"
# sizes = {WIDTH = [44, 48, 52], BATCH = [30, 34]}
# ///
"""Recognises activities from wrist accelerometers with a residual TCN, in Lightning."""

import logging
import tempfile
import time
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.utilities import grad_norm
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH = 48
BATCH = 32
BLOCKS = 14
LENGTH = 128
CLASSES = 6
STEPS = 120
WARMUP = 10

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)


class Block(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.norm1 = nn.GroupNorm(4, width)
        self.conv1 = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)
        self.norm2 = nn.GroupNorm(4, width)
        self.conv2 = nn.Conv1d(width, width, 1)
        self.squeeze = nn.Linear(width, width // 4)
        self.excite = nn.Linear(width // 4, width)

    def forward(self, x):
        h = self.conv1(F.relu(self.norm1(x)))
        h = self.conv2(F.relu(self.norm2(h)))
        gate = torch.sigmoid(self.excite(F.relu(self.squeeze(h.mean(2)))))
        return x + h * gate[..., None]


class Activity(L.LightningModule):
    def __init__(self, width, blocks, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.stem = nn.Conv1d(6, width, 5, padding=2)
        self.blocks = nn.ModuleList(Block(width, 2 ** (i % 5)) for i in range(blocks))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, CLASSES))

    def forward(self, x):
        h = self.stem(x)
        for block in self.blocks:
            h = block(h)
        return self.head(h.mean(2))

    def training_step(self, batch, _):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, _):
        x, y = batch
        self.log("val_acc", (self(x).argmax(1) == y).float().mean())

    def on_before_optimizer_step(self, optimizer):
        # deep stack without batch norm: keep an eye on each layer's gradients
        if (self.global_step + 1) % self.trainer.log_every_n_steps == 0:  # well
            self.log_dict(grad_norm(self, norm_type=2))  # well
        self.log_dict(grad_norm(self, norm_type=2))  # sick here

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-2)
        sched = torch.optim.lr_scheduler.OneCycleLR(opt, 3 * self.hparams.lr, total_steps=STEPS + WARMUP)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


class Pace(L.Callback):
    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if trainer.global_step == WARMUP:
            self.start = time.perf_counter()

    def on_train_end(self, trainer, module):
        rate = (trainer.global_step - WARMUP) / (time.perf_counter() - self.start)
        print(f"val acc {trainer.callback_metrics['val_acc'].item():.3f}")
        print(f"{rate:.2f} steps/s")


def recordings(n, seed):
    """Six channels of a gait-like oscillation: cadence and harmonics depend on the activity."""
    gen = torch.Generator().manual_seed(seed)
    y = torch.randint(CLASSES, (n,), generator=gen)
    t = torch.arange(LENGTH) / 32.0
    cadence = 0.8 + 0.35 * y[:, None] + 0.08 * torch.randn(n, 1, generator=gen)
    phase = 6.28 * torch.rand(n, 6, 1, generator=gen)
    base = 6.28 * (cadence * t)[:, None, :]
    wave = torch.sin(base + phase) + 0.4 * torch.sin(2 * base + phase)
    return TensorDataset(wave + 0.6 * torch.randn(n, 6, LENGTH, generator=gen), y)


def main():
    L.seed_everything(9)
    train = DataLoader(recordings(3200, 1), batch_size=BATCH, shuffle=True, drop_last=True)
    valid = DataLoader(recordings(320, 2), batch_size=BATCH)
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(
            max_steps=STEPS + WARMUP,
            accelerator="cpu",
            logger=CSVLogger(folder),
            log_every_n_steps=25,
            gradient_clip_val=1.0,
            callbacks=[Pace()],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
        trainer.fit(Activity(WIDTH, BLOCKS), train, valid)


if __name__ == "__main__":
    main()
