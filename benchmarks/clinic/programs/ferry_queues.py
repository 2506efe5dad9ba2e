# /// clinic
# expect = ["PD20.evaluation-too-often"]
# stratum = "twins"
# domain = "ferry queues"
# allow = ["PD20.evaluation-too-often"]
# ///
"""Queues of cars before the ferry: a forecaster for all ports, then one fine-tuned copy for each terminal."""

import copy
import logging
import math
import time
import warnings
from dataclasses import dataclass

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


@dataclass
class Config:
    lookback: int = 96  # quarter hours
    horizon: int = 8
    hidden: int = 64
    ports_windows: int = 1600
    ports_epochs: int = 3
    tune_windows: int = 192
    tune_epochs: int = 12
    held_out: int = 1536
    batch: int = 32
    lr: float = 2e-3
    tune_lr: float = 5e-4
    terminals: tuple = ("Larne", "Rosslare", "Cairnryan", "Holyhead")


def quay_days(n, cfg, gen, rush=1.0, capacity=40.0):
    """n windows of arrivals, sailings, weather; the target is the queue over the next two hours."""
    length = cfg.lookback + cfg.horizon
    start = torch.randint(0, 96 * 7, (n, 1), generator=gen)
    t = start + torch.arange(length)
    hour = (t % 96) / 4.0
    weekend = ((t // 96) % 7 >= 5).float()
    swell = torch.rand(n, 1, generator=gen).expand(n, length)
    mean = rush * (4 + 6 * torch.exp(-((hour - 8) ** 2) / 4) + 8 * torch.exp(-((hour - 17) ** 2) / 5)) * (1 + weekend)
    arrivals = torch.poisson(mean, generator=gen)
    sailing = ((t % 6) == 0).float() * (torch.rand(n, length, generator=gen) > 0.3 * swell).float()
    queue = torch.zeros(n, length)
    waiting = torch.zeros(n)
    for k in range(length):
        waiting = (waiting + arrivals[:, k] - capacity * sailing[:, k]).clamp(min=0)
        queue[:, k] = waiting
    day = 2 * math.pi * hour / 24
    signals = [arrivals / 10, sailing, swell, weekend, torch.sin(day), torch.cos(day), queue / 50]
    x = torch.stack(signals, dim=-1)[:, : cfg.lookback]
    return TensorDataset(x.contiguous(), (queue / 50)[:, cfg.lookback :].contiguous())


class QueueForecaster(L.LightningModule):
    def __init__(self, cfg, lr):
        super().__init__()
        self.lr = lr
        self.inp = nn.Sequential(nn.Linear(7, 32), nn.GELU())
        self.gru = nn.GRU(32, cfg.hidden, batch_first=True)
        self.out = nn.Sequential(nn.LayerNorm(cfg.hidden), nn.Linear(cfg.hidden, 64), nn.GELU())
        self.mean = nn.Linear(64, cfg.horizon)
        self.logvar = nn.Linear(64, cfg.horizon)

    def forward(self, x):
        h, _ = self.gru(self.inp(x))
        h = self.out(h[:, -1])
        return self.mean(h), self.logvar(h).clamp(-5, 3)

    def training_step(self, batch, _):
        x, y = batch
        mean, logvar = self(x)
        return F.gaussian_nll_loss(mean, y, logvar.exp())

    def validation_step(self, batch, _):
        x, y = batch
        mean, logvar = self(x)
        self.log("val_nll", F.gaussian_nll_loss(mean, y, logvar.exp()), on_epoch=True, batch_size=len(x))
        self.log("val_mae", 50 * F.l1_loss(mean, y), on_epoch=True, batch_size=len(x))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=self.trainer.max_epochs)
        return {"optimizer": optimizer, "lr_scheduler": schedule}


class Clock(Callback):
    def __init__(self):
        self.began = None
        self.windows = 0

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if self.began is None:
            self.began = time.perf_counter()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.windows += len(batch[0])


def build_trainer(name, epochs, clock, val_every):
    best = ModelCheckpoint(dirpath=f"ckpt/{name}", monitor="val_nll", save_top_k=1, save_weights_only=True)
    trainer = L.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        devices=1,
        logger=False,
        callbacks=[best, clock],
        check_val_every_n_epoch=val_every,
        gradient_clip_val=1.0,
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    return trainer, best


def restore(model, best):
    model.load_state_dict(torch.load(best.best_model_path, weights_only=False)["state_dict"])
    return float(best.best_model_score)


def main():
    cfg = Config()
    L.seed_everything(7, verbose=False)
    gen = torch.Generator().manual_seed(7)
    clock = Clock()

    ports = DataLoader(quay_days(cfg.ports_windows, cfg, gen), batch_size=64, shuffle=True, drop_last=True)
    ports_val = DataLoader(quay_days(512, cfg, gen), batch_size=128)
    terminals = {}
    for k, terminal in enumerate(cfg.terminals):
        habits = dict(rush=0.7 + 0.25 * k, capacity=30.0 + 12 * k)
        terminals[terminal] = (
            DataLoader(quay_days(cfg.tune_windows, cfg, gen, **habits), batch_size=cfg.batch, shuffle=True),
            DataLoader(quay_days(cfg.held_out, cfg, gen, **habits), batch_size=128),
        )

    base = QueueForecaster(cfg, cfg.lr)
    trainer, best = build_trainer("ports", cfg.ports_epochs, clock, val_every=1)
    trainer.fit(base, ports, ports_val)
    print(f"all ports: nll {restore(base, best):.3f}")
    weights = copy.deepcopy(base.state_dict())

    for terminal, (train, val) in terminals.items():
        model = QueueForecaster(cfg, cfg.tune_lr)
        model.load_state_dict(weights)
        trainer, best = build_trainer(terminal, cfg.tune_epochs, clock, val_every=1)  # sick here
        trainer, best = build_trainer(terminal, cfg.tune_epochs, clock, val_every=4)  # well
        trainer.fit(model, train, val)
        print(f"{terminal}: nll {restore(model, best):.3f}")
        torch.save(model.state_dict(), f"ckpt/{terminal}.pt")

    rate = clock.windows / (time.perf_counter() - clock.began)
    print(f"{rate:.1f} windows/s")


if __name__ == "__main__":
    main()
