# /// clinic
# expect = ["PD08.memory-trimmed"]
# stratum = "twins"
# domain = "crazed glaze in porcelain kiln firings"
# ///
"""Predict which firings of a porcelain kiln end in crazed glaze, from the thermocouple traces."""

import ctypes
import sys
import time

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS = 256
PROBES = 6
OUTCOMES = 3  # sound, crazed, shivered


def fire(rng):
    """One firing: ramp, soak, cooling; the outcome hangs on the cooling and on the soak."""
    t = np.linspace(0, 1, STEPS)
    top = rng.uniform(0.88, 1.0)
    soak = rng.uniform(0.05, 0.2)
    quench = rng.uniform(2.0, 7.0)
    peak = rng.uniform(0.4, 0.5)
    curve = np.where(t < peak, top * np.sin(t / peak * np.pi / 2), top)
    cooling = t > peak + soak
    curve = np.where(cooling, top * np.exp(-quench * (t - peak - soak)), curve)
    lag = rng.uniform(0, 0.05, PROBES)
    traces = np.stack([np.interp(t - d, t, curve) for d in lag], axis=1)
    traces += rng.normal(0, 0.02, traces.shape)
    if quench > 5.0:
        outcome = 1
    elif soak > 0.13 and top > 0.93:
        outcome = 2
    else:
        outcome = 0
    return traces.astype(np.float32), outcome


def make_firings(count, seed):
    rng = np.random.default_rng(seed)
    traces, outcomes = zip(*(fire(rng) for _ in range(count)))
    return TensorDataset(torch.from_numpy(np.stack(traces)), torch.tensor(outcomes))


class GatedResidual(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.value = nn.Linear(width, width)
        self.gate = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        h = self.norm(x)
        return x + self.dropout(F.elu(self.value(h)) * torch.sigmoid(self.gate(h)))


class GlazeOutcome(L.LightningModule):
    def __init__(self, width=64, depth=6, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.lift = nn.Linear(PROBES, width)
        self.place = nn.Parameter(torch.randn(STEPS, width) * 0.1)
        self.blocks = nn.ModuleList(GatedResidual(width, 0.05) for _ in range(depth))
        self.score = nn.Linear(width, 1)
        self.out = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, OUTCOMES))

    def forward(self, traces):
        x = self.lift(traces) + self.place
        for block in self.blocks:
            x = block(x)
        weight = self.score(x).softmax(dim=1)
        return self.out((weight * x).sum(dim=1))

    def training_step(self, batch, _):
        traces, outcome = batch
        return F.cross_entropy(self(traces), outcome)

    def validation_step(self, batch, _):
        traces, outcome = batch
        hit = (self(traces).argmax(1) == outcome).float().mean()
        self.log("held_out", hit, on_epoch=True, batch_size=len(outcome))

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-2)
        steps = self.trainer.estimated_stepping_batches
        return {
            "optimizer": opt,
            "lr_scheduler": {
                "scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps),
                "interval": "step",
            },
        }


class MemoryKeeper(L.Callback):
    """The kiln office's box has little memory and shares it with the stock book."""

    def __init__(self):
        self.libc = ctypes.CDLL("libc.so.6") if sys.platform == "linux" else None

    def tidy(self):
        if self.libc is not None:
            self.libc.malloc_trim(0)  # here

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):  # sick here
        self.tidy()  # sick here

    def on_train_end(self, trainer, module):  # well
        self.tidy()  # well


class Epochs(L.Callback):
    def on_fit_start(self, trainer, module):
        self.begin = time.perf_counter()

    def on_validation_epoch_end(self, trainer, module):
        if not trainer.sanity_checking:
            held = trainer.callback_metrics["held_out"].item()
            print(f"epoch {trainer.current_epoch + 1:3d}  held-out accuracy {held:.3f}")

    def on_fit_end(self, trainer, module):
        print(f"training took {time.perf_counter() - self.begin:.1f} s")


if __name__ == "__main__":
    L.seed_everything(11)
    past, recent = make_firings(640, seed=3), make_firings(128, seed=4)
    trainer = L.Trainer(
        max_epochs=16,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        check_val_every_n_epoch=2,
        num_sanity_val_steps=0,
        callbacks=[MemoryKeeper(), Epochs()],
    )
    trainer.fit(
        GlazeOutcome(),
        DataLoader(past, batch_size=16, shuffle=True, drop_last=True),
        DataLoader(recent, batch_size=32),
    )
