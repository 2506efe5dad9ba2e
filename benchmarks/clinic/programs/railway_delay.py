# /// clinic
# expect = ["PD15.longer-rounds"]
# stratum = "twins"
# domain = "railway timetables"
# ///
"""Which stops of a train run will be late by more than three minutes?

A run is a timetable of 24 calls with what is known ahead of it: booked dwell and running
time, slack, platform changes, load, weather, and the delay it has at its origin. Delays come
from a small simulation of a single line and pass from stop to stop. The network reads the
whole run and says for each call how likely a late arrival is.
"""

import time

import lightning as L
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import BinaryAveragePrecision

CALLS, FACTS = 24, 10


def simulate(runs, seed):
    rng = np.random.default_rng(seed)
    line = np.random.default_rng(99)
    hard = line.gamma(1.5, 0.5, size=CALLS)
    running = rng.integers(4, 16, size=(runs, CALLS)).astype(np.float32)
    dwell = rng.integers(1, 5, size=(runs, CALLS)).astype(np.float32)
    slack = running * rng.choice([0.02, 0.05, 0.09], size=(runs, 1))
    load = rng.beta(2, 3, size=(runs, CALLS))
    platform = (rng.random((runs, CALLS)) < 0.06).astype(np.float32)
    crossing = (rng.random((runs, CALLS)) < 0.2).astype(np.float32)
    storm = (rng.random((runs, 1)) < 0.15).astype(np.float32)
    peak = (rng.random((runs, 1)) < 0.35).astype(np.float32)
    delay = rng.exponential(1.2, size=runs)
    origin = delay.copy()
    late = np.zeros((runs, CALLS), np.float32)
    for c in range(CALLS):
        lost = hard[c] * (0.15 * running[:, c] / 10 + 0.3 * storm[:, 0] + 0.4 * crossing[:, c])
        lost += 1.2 * load[:, c] * peak[:, 0] + 1.5 * platform[:, c] + rng.normal(0, 0.5, runs)
        delay = np.maximum(delay + lost - slack[:, c] - 0.15 * dwell[:, c], 0)
        late[:, c] = delay > 3
    wide = np.ones((runs, CALLS))
    facts = np.stack(
        [
            running / 10,
            dwell / 3,
            slack,
            load,
            platform,
            crossing,
            storm * wide,
            peak * wide,
            origin[:, None] * wide / 3,
            np.arange(CALLS) / CALLS * wide,
        ],
        axis=-1,
    )
    return TensorDataset(torch.from_numpy(facts.astype(np.float32)), torch.from_numpy(late))


class Timetable(L.LightningDataModule):
    def __init__(self, runs=10240, batch=256):
        super().__init__()
        self.runs, self.batch = runs, batch

    def setup(self, stage=None):
        self.train, self.test = simulate(self.runs, 1), simulate(1024, 2)

    def train_dataloader(self):
        return DataLoader(self.train, self.batch, shuffle=True, drop_last=True)

    def test_dataloader(self):
        return DataLoader(self.test, self.batch)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner = nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width))

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(self.first(x)).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, w))
        return x + self.inner(self.second(x))


class Punctuality(L.LightningModule):
    def __init__(self, width=48, depth=1, heads=3, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.enter = nn.Linear(FACTS, width)
        self.where = nn.Parameter(torch.randn(CALLS, width) * 0.02)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(depth)])
        self.leave = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))
        self.loss = nn.BCEWithLogitsLoss()
        self.train_ap = BinaryAveragePrecision()
        self.test_ap = BinaryAveragePrecision()

    def forward(self, facts):
        return self.leave(self.blocks(self.enter(facts) + self.where)).squeeze(-1)

    def training_step(self, batch, batch_idx):
        facts, late = batch
        logits = self(facts)
        loss = self.loss(logits, late)
        self.train_ap.update(logits.detach().sigmoid(), late.int())
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def on_train_epoch_end(self):
        self.log("train_ap", self.train_ap.compute())  # here
        self.train_ap.reset()  # well

    def test_step(self, batch, batch_idx):
        facts, late = batch
        self.test_ap.update(self(facts).sigmoid(), late.int())

    def on_test_epoch_end(self):
        self.log("test_ap", self.test_ap.compute())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.01)
        steps = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.hparams.lr, total_steps=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Report(L.Callback):
    def on_train_start(self, trainer, module):
        self.began = time.perf_counter()

    def on_train_epoch_end(self, trainer, module):
        seen = trainer.callback_metrics
        print(
            f"epoch {trainer.current_epoch + 1:3d}  loss {seen['train_loss'].item():.4f}"
            f"  {time.perf_counter() - self.began:6.1f} s",
            flush=True,
        )

    def on_train_end(self, trainer, module):
        self.seconds = time.perf_counter() - self.began


if __name__ == "__main__":
    import sys

    L.seed_everything(1830)
    report = Report()
    trainer = L.Trainer(
        max_epochs=int(sys.argv[1]) if len(sys.argv) > 1 else 26,
        accelerator="cpu",
        devices=1,
        callbacks=[report],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model, data = Punctuality(), Timetable()
    trainer.fit(model, datamodule=data)
    trainer.test(model, datamodule=data)
    print(f"training seconds: {report.seconds:.1f}")
