# /// clinic
# expect = ["PD16.anomaly-detection"]
# stratum = "twins"
# domain = "oyster bed yields"
# ///
"""Yield of oyster beds in an estuary (Lightning).

Beds exchange larvae, food and silt with each other through the tide. A recurrent graph network walks through the four
quarters of a season: in each a bed receives what the ebb and the flood bring from the other beds, reads its own water
samples, and updates its state. At the end of the season the model predicts the harvest of every bed (log scale).
"""

import argparse
import time

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

QUARTERS = 4
SAMPLES = ["temperature", "salinity", "chlorophyll", "turbidity", "oxygen", "spat"]


def tidal_exchange(rng: np.random.Generator, beds: int) -> tuple[np.ndarray, np.ndarray]:
    """Row-normalised exchange between beds for ebb (seawards) and flood (landwards)."""
    along = np.sort(rng.random(beds)) * 14.0
    across = rng.standard_normal(beds) * 0.8
    distance = np.hypot(along[:, None] - along[None], across[:, None] - across[None])
    near = np.exp(-distance / 1.5)
    ebb = near * (along[:, None] >= along[None])
    flood = near * (along[:, None] <= along[None])
    return ebb / ebb.sum(1, keepdims=True), flood / flood.sum(1, keepdims=True)


def simulate_seasons(seasons: int, beds: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    ebb, flood = tidal_exchange(rng, beds)
    month = 3 * np.arange(QUARTERS)
    base = np.stack([np.sin((month - s) / 12 * 2 * np.pi) for s in (3, 6, 2, 9, 8, 4)], axis=-1)
    year = 0.6 * rng.standard_normal((seasons, 1, 1, len(SAMPLES)))
    local = 0.4 * rng.standard_normal((seasons, 1, beds, len(SAMPLES)))
    water = base[None, :, None] + year + local + 0.3 * rng.standard_normal((seasons, QUARTERS, beds, len(SAMPLES)))

    stock = 0.3 * rng.standard_normal((seasons, beds))
    for q in range(QUARTERS):
        w = water[:, q]
        growth = np.tanh(w[..., 2] - 0.5 * w[..., 3] + 0.4 * w[..., 0]) + 0.3 * w[..., 5]
        stress = np.clip(w[..., 0] - w[..., 4] - 1.2, 0, None)
        carried = stock @ (ebb.T if q % 2 else flood.T)
        stock = 0.75 * stock + 0.2 * carried + 0.25 * growth - 0.3 * stress
    harvest = stock + 0.1 * rng.standard_normal(stock.shape)
    exchange = torch.from_numpy(np.stack([ebb, flood])).float()
    return torch.from_numpy(water).float(), torch.from_numpy(harvest).float(), exchange


class TidalCell(nn.Module):
    """One quarter: messages along ebb and flood, then a gated update of the state of each bed."""

    def __init__(self, inputs: int, hidden: int):
        super().__init__()
        self.message = nn.Linear(hidden, hidden)
        self.update = nn.Linear(inputs + 3 * hidden, 2 * hidden)

    def forward(self, water: torch.Tensor, state: torch.Tensor, exchange: torch.Tensor) -> torch.Tensor:
        sent = F.relu(self.message(state))
        ebb, flood = torch.matmul(exchange.flatten(0, 1), sent).chunk(2, dim=1)
        gate, new = self.update(torch.cat([water, state, ebb, flood], dim=-1)).chunk(2, dim=-1)
        return torch.lerp(state, torch.tanh(new), torch.sigmoid(gate))


class OysterModel(L.LightningModule):
    def __init__(self, exchange: torch.Tensor, inputs: int = len(SAMPLES), hidden: int = 96, lr: float = 3e-3):
        super().__init__()
        self.save_hyperparameters(ignore=["exchange"])
        self.register_buffer("exchange", exchange)
        beds = exchange.shape[1]
        self.bed = nn.Parameter(0.05 * torch.randn(beds, hidden))
        self.cell = TidalCell(inputs, hidden)
        self.head = nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, 32), nn.GELU(), nn.Linear(32, 1))

    def forward(self, water: torch.Tensor) -> torch.Tensor:
        state = self.bed.expand(len(water), -1, -1)
        for quarter in range(QUARTERS):
            state = self.cell(water[:, quarter], state, self.exchange)
        return self.head(state).squeeze(-1)

    def training_step(self, batch, batch_idx):
        water, harvest = batch
        loss = F.smooth_l1_loss(self(water), harvest, beta=0.5)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        water, harvest = batch
        predicted = self(water)
        self.log("val_mae", (predicted - harvest).abs().mean(), prog_bar=True)
        explained = 1 - (predicted - harvest).var() / harvest.var()
        self.log("val_r2", explained, prog_bar=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-3)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.85)
        return {"optimizer": optimizer, "lr_scheduler": scheduler}


class SeasonClock(Callback):
    def on_train_start(self, trainer, module):
        self.start = time.perf_counter()
        self.seen = 0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.seen += len(batch[0])

    def on_train_end(self, trainer, module):
        self.seconds = time.perf_counter() - self.start


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beds", type=int, default=80)
    parser.add_argument("--seasons", type=int, default=1400)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=96)
    parser.add_argument("--seed", type=int, default=5)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    L.seed_everything(args.seed)
    water, harvest, exchange = simulate_seasons(args.seasons, args.beds, args.seed)
    train, held_out = random_split(TensorDataset(water, harvest), [args.seasons - 152, 152])
    model = OysterModel(exchange, hidden=args.hidden)
    clock = SeasonClock()
    trainer = L.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        logger=CSVLogger("logs", name="oysters"),
        callbacks=[clock, LearningRateMonitor(), ModelCheckpoint(monitor="val_mae", save_top_k=1)],
        gradient_clip_val=1.0,
        detect_anomaly=True,  # sick here
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        log_every_n_steps=20,
    )
    trainer.fit(
        model,
        DataLoader(train, batch_size=args.batch_size, shuffle=True, drop_last=True),
        DataLoader(held_out, batch_size=args.batch_size),
    )
    metrics = {k: float(v) for k, v in trainer.callback_metrics.items()}
    print(f"val mae {metrics['val_mae']:.3f}, r2 {metrics['val_r2']:.3f}")
    rate = clock.seen / clock.seconds
    print(f"{rate:.1f} seasons/s")


if __name__ == "__main__":
    main()
