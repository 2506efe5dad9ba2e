# /// clinic
# expect = ["PD20.logging"]
# stratum = "twins"
# domain = "wasp nests"
# ///
"""Paper-wasp nests: recognise what the colony does from short vibration records of the comb (Lightning)."""

import time

import lightning as L
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.utilities import grad_norm
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy

BEHAVIOURS = ["resting", "fanning", "antennal drumming", "larval scraping", "alarm buzz", "pulp chewing"]
RATE = 2000
LENGTH = 1024


def make_records(count, seed):
    """Each behaviour has its carrier frequency, its bursts per second and its share of noise."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, len(BEHAVIOURS), count)
    t = np.arange(LENGTH, dtype=np.float32) / RATE
    carrier = np.array([40, 110, 260, 180, 320, 75], dtype=np.float32)[label] * rng.normal(1, 0.08, count)
    bursts = np.array([0.5, 9, 21, 5, 14, 3], dtype=np.float32)[label] * rng.normal(1, 0.10, count)
    phase = rng.random((count, 2, 1)).astype(np.float32) * 2 * np.pi
    wave = np.sin(2 * np.pi * carrier[:, None].astype(np.float32) * t + phase[:, 0])
    gate = np.clip(np.sin(2 * np.pi * bursts[:, None].astype(np.float32) * t + phase[:, 1]) * 3, 0, 1)
    noise = rng.standard_normal((count, LENGTH), dtype=np.float32)
    record = wave * gate + noise * rng.uniform(0.5, 1.5, (count, 1)).astype(np.float32)
    return torch.from_numpy(record.astype(np.float32)), torch.from_numpy(label)


class CombData(L.LightningDataModule):
    def __init__(self, train=3200, val=600, batch_size=16):
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage):
        self.train_set = TensorDataset(*make_records(self.hparams.train, seed=1))
        self.val_set = TensorDataset(*make_records(self.hparams.val, seed=2))

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.hparams.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=100)


class Block(nn.Module):
    def __init__(self, dim, heads, expand):
        super().__init__()
        self.heads = heads
        self.norm_mix = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.norm_ff = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, expand * dim)
        self.down = nn.Linear(expand * dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm_mix(x)).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, n, d))
        return x + self.down(F.gelu(self.up(self.norm_ff(x))))


class CombListener(L.LightningModule):
    def __init__(self, dim=72, depth=8, heads=4, expand=3, patch=32, lr=6e-4, warmup=60):
        super().__init__()
        self.save_hyperparameters()
        self.embed = nn.Conv1d(1, dim, patch, stride=patch)
        self.place = nn.Parameter(torch.randn(1, LENGTH // patch, dim) * 0.02)
        self.blocks = nn.Sequential(*[Block(dim, heads, expand) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, len(BEHAVIOURS))
        self.val_accuracy = MulticlassAccuracy(len(BEHAVIOURS), average="macro")

    def forward(self, record):
        record = (record - record.mean(1, keepdim=True)) / record.std(1, keepdim=True)
        tokens = self.embed(record[:, None]).transpose(1, 2) + self.place
        return self.head(self.norm(self.blocks(tokens)).mean(1))

    def training_step(self, batch, batch_idx):
        record, label = batch
        shift = int(torch.randint(0, LENGTH, ()))
        logits = self(record.roll(shift, dims=1))
        loss = F.cross_entropy(logits, label, label_smoothing=0.05)
        self.log("train_loss", loss)
        return loss

    def on_before_optimizer_step(self, optimizer):
        if (self.global_step + 1) % self.trainer.log_every_n_steps:  # well
            return  # well
        self.log_dict(grad_norm(self, norm_type=2))  # here

    def validation_step(self, batch, batch_idx):
        record, label = batch
        logits = self(record)
        self.val_accuracy(logits, label)
        self.log("val_loss", F.cross_entropy(logits, label))
        self.log("val_accuracy", self.val_accuracy)

    def configure_optimizers(self):
        decay = [p for p in self.parameters() if p.ndim > 1]
        plain = [p for p in self.parameters() if p.ndim <= 1]
        groups = [{"params": decay, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=self.hparams.lr)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / self.hparams.warmup))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Rate(Callback):
    def on_train_start(self, trainer, module):
        self.began = time.perf_counter()
        self.seen = 0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.seen += len(batch[1])

    def on_validation_end(self, trainer, module):
        if not trainer.sanity_checking:
            m = trainer.callback_metrics
            print(f"epoch {trainer.current_epoch}: val loss {m['val_loss']:.3f}, accuracy {m['val_accuracy']:.3f}")

    def on_train_end(self, trainer, module):
        self.rate = self.seen / (time.perf_counter() - self.began)


def main():
    L.seed_everything(7)
    meter = Rate()
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=2,
        logger=CSVLogger("logs", name="combs"),
        log_every_n_steps=25,
        gradient_clip_val=1.0,
        callbacks=[meter],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(CombListener(), datamodule=CombData())
    print(f"{meter.rate:.1f} records/s")


if __name__ == "__main__":
    main()
