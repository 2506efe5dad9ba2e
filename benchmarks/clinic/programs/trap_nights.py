# /// clinic
# expect = ["PD03.per-sample-indexing"]
# stratum = "twins"
# domain = "moth traps"
# ///
"""Expected catches of moth traps from the night's weather, the lamp and the place of the trap (Lightning)."""

import logging
import time
import warnings
from dataclasses import dataclass

import lightning as L
import numpy as np
import pandas as pd
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", ".*does not have many workers.*")

WEATHER = ["dusk_temp", "min_temp", "wind", "humidity", "rain", "cloud", "moon", "season_sin", "season_cos", "lamp"]
GROUPS = ["noctuids", "geometrids", "hawkmoths", "micros"]


@dataclass
class Config:
    traps: int = 60
    nights: int = 220
    batch_size: int = 32
    epochs: int = 13
    width: int = 64
    trap_dim: int = 12
    lr: float = 2e-3
    seed: int = 1874


def trap_book(cfg: Config) -> pd.DataFrame:
    """The log book: one row for each trap and night."""
    rng = np.random.default_rng(cfg.seed)
    n = cfg.traps * cfg.nights
    trap = np.repeat(np.arange(cfg.traps), cfg.nights)
    night = np.tile(np.arange(cfg.nights), cfg.traps)
    season = 2 * np.pi * night / 365
    warmth = np.sin(season) + 0.4 * rng.normal(size=n)
    book = pd.DataFrame(
        {
            "trap": trap,
            "dusk_temp": warmth,
            "min_temp": warmth - 0.5 + 0.2 * rng.normal(size=n),
            "wind": rng.gamma(2.0, 0.5, n),
            "humidity": rng.beta(4, 2, n),
            "rain": (rng.random(n) < 0.2) * rng.gamma(1.0, 1.0, n),
            "cloud": rng.random(n),
            "moon": 0.5 + 0.5 * np.cos(2 * np.pi * night / 29.5),
            "season_sin": np.sin(season),
            "season_cos": np.cos(season),
            "lamp": rng.choice([0.2, 0.6, 1.25], cfg.traps)[trap],
        }
    )
    richness = rng.normal(0.0, 0.6, (cfg.traps, len(GROUPS)))
    taste = rng.normal(0.0, 0.25, (len(WEATHER), len(GROUPS)))
    log_rate = 1.0 + richness[trap] + book[WEATHER].to_numpy() @ taste
    log_rate += 0.5 * book["lamp"].to_numpy()[:, None] * (1 - book["moon"].to_numpy()[:, None])
    counts = rng.poisson(np.exp(np.clip(log_rate, -3, 4)))
    for column, group in enumerate(GROUPS):
        book[group] = counts[:, column]
    return book


class TrapNights(Dataset):
    """Weather, trap number and catches of one night."""

    def __init__(self, book: pd.DataFrame):
        self.book = book.reset_index(drop=True)
        self.weather = torch.tensor(self.book[WEATHER].to_numpy(), dtype=torch.float32)  # well
        self.trap = torch.tensor(self.book["trap"].to_numpy(), dtype=torch.long)  # well
        self.catch = torch.tensor(self.book[GROUPS].to_numpy(), dtype=torch.float32)  # well

    def __len__(self):
        return len(self.book)

    def __getitem__(self, index):
        night = self.book.iloc[index].to_numpy(dtype=np.float32)  # sick here
        weather, catch = night[1 : 1 + len(WEATHER)], night[1 + len(WEATHER) :]  # sick
        return torch.from_numpy(weather), int(night[0]), torch.from_numpy(catch)  # sick
        return self.weather[index], self.trap[index], self.catch[index]  # well


class TrapData(L.LightningDataModule):
    def __init__(self, cfg: Config):
        super().__init__()
        self.cfg = cfg

    def setup(self, stage=None):
        book = trap_book(self.cfg).sample(frac=1.0, random_state=self.cfg.seed)
        cut = int(0.92 * len(book))
        self.train_set, self.held_out = TrapNights(book.iloc[:cut]), TrapNights(book.iloc[cut:])

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.cfg.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.held_out, batch_size=256)


class CatchModel(L.LightningModule):
    """Negative binomial regression with an embedding for the place of the trap."""

    def __init__(self, cfg: Config):
        super().__init__()
        self.cfg = cfg
        self.place = nn.Embedding(cfg.traps, cfg.trap_dim)
        self.body = nn.Sequential(
            nn.Linear(len(WEATHER) + cfg.trap_dim, cfg.width),
            nn.SiLU(),
            nn.Linear(cfg.width, cfg.width),
            nn.SiLU(),
            nn.Linear(cfg.width, len(GROUPS)),
        )
        self.log_spread = nn.Parameter(torch.zeros(len(GROUPS)))

    def forward(self, weather, trap):
        return self.body(torch.cat([weather, self.place(trap)], dim=1))

    def loss(self, batch):
        weather, trap, catch = batch
        log_mean = self(weather, trap).clamp(-6, 6)
        spread = F.softplus(self.log_spread) + 1e-3
        log_all = torch.logaddexp(log_mean, spread.log().expand_as(log_mean))
        likelihood = (
            torch.lgamma(catch + spread)
            - torch.lgamma(spread)
            - torch.lgamma(catch + 1)
            + spread * (spread.log() - log_all)
            + catch * (log_mean - log_all)
        )
        return -likelihood.mean()

    def training_step(self, batch, batch_idx):
        return self.loss(batch)

    def validation_step(self, batch, batch_idx):
        self.log("val_nll", self.loss(batch), batch_size=len(batch[1]))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.cfg.lr, weight_decay=1e-3, fused=True)


class Clock(Callback):
    """Counts the nights seen and the time that they took, and reports each epoch."""

    def on_train_start(self, trainer, module):
        self.nights, self.began = 0, time.perf_counter()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.nights += len(batch[1])

    def on_validation_end(self, trainer, module):
        print(f"epoch {trainer.current_epoch}: held-out nll {float(trainer.callback_metrics['val_nll']):.4f}")

    def on_train_end(self, trainer, module):
        self.rate = self.nights / (time.perf_counter() - self.began)


if __name__ == "__main__":
    cfg = Config()
    L.seed_everything(cfg.seed, verbose=False)
    clock = Clock()
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=cfg.epochs,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[clock],
    )
    trainer.fit(CatchModel(cfg), datamodule=TrapData(cfg))
    print(f"{clock.rate:.1f} samples/s")
