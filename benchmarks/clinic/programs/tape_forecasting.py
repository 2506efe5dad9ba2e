# /// clinic
# expect = ["PD14.whole-storages", "PD14.unchanging-content"]
# stratum = "twins"
# domain = "finance"
# ///
"""Short-horizon forecast of order-flow imbalance from a tape of market features, with Lightning. A checkpoint carries
what the live service needs to start at once: the weights, the scaling, and the last stretch of the tape.

    python tape_forecasting.py [sick|well]
"""

import shutil
import tempfile
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler


warnings.filterwarnings("ignore", message=".*does not have many workers.*")

TICKS = 600_000
FEATURES = 64
LOOKBACK = 64
AHEAD = 8
BATCH = 96


def load_tape(seed=3):
    """Features of one instrument, tick by tick: mean-reverting factors, mixed, with heavy-tailed noise."""
    gen = torch.Generator().manual_seed(seed)
    shocks = torch.randn(TICKS, 6, generator=gen)
    slow = F.avg_pool1d(shocks.T.unsqueeze(0), 32, stride=1, padding=16)[0, :, :TICKS].T * 4.0
    mixing = torch.randn(6, FEATURES, generator=gen) / 6**0.5
    tape = slow @ mixing
    tape += 0.5 * torch.randn(TICKS, FEATURES, generator=gen)
    target = torch.tanh(slow[:, 0] * 0.8 + slow[:, 1] * slow[:, 2] * 0.3)
    return tape, target


class TapeWindows(Dataset):
    """Indexed by a list of end ticks: one gather gives a whole batch."""

    def __init__(self, tape, target):
        self.tape, self.target = tape, target
        self.offsets = torch.arange(LOOKBACK)

    def __len__(self):
        return len(self.tape) - LOOKBACK - AHEAD

    def __getitem__(self, starts):
        starts = torch.as_tensor(starts)
        return self.tape[starts[:, None] + self.offsets], self.target[starts + LOOKBACK + AHEAD - 1]


class FlowForecaster(L.LightningModule):
    def __init__(self, width=64, layers=2, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.inlet = nn.Linear(FEATURES, width)
        self.place = nn.Parameter(0.02 * torch.randn(LOOKBACK, width))
        block = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.outlet = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))
        self.register_buffer("centre", torch.zeros(FEATURES))
        self.register_buffer("scale", torch.ones(FEATURES))

    def fit_scaling(self, tape):
        self.centre.copy_(tape.mean(0))
        self.scale.copy_(tape.std(0))

    def forward(self, windows):
        x = self.inlet((windows - self.centre) / self.scale) + self.place
        return self.outlet(self.body(x).mean(1)).squeeze(-1)

    def training_step(self, batch, batch_index):
        windows, target = batch
        return F.huber_loss(self(windows), target, delta=0.5)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, fused=True)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, total_iters=40)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class WarmStart(Callback):
    """Puts the newest stretch of the tape into each checkpoint, for the live service to go on from."""

    def __init__(self, tape, stretch=4 * LOOKBACK):
        self.tape, self.stretch = tape, stretch

    def on_save_checkpoint(self, trainer, module, checkpoint):
        recent = self.tape[-self.stretch :]  # sick here
        recent = self.tape[-self.stretch :].clone()  # well
        checkpoint["warm_start"] = {"recent": recent, "ahead": AHEAD, "tick": len(self.tape)}  # here


class Progress(Callback):
    def __init__(self, every=25):
        self.every, self.smooth = every, None

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_index):
        if trainer.global_step % self.every == 0:
            now = outputs["loss"].item()
            self.smooth = now if self.smooth is None else 0.8 * self.smooth + 0.2 * now
            print(f"step {trainer.global_step:4d}  loss {now:.4f}  smoothed {self.smooth:.4f}", flush=True)


def main():
    L.seed_everything(17, verbose=False)
    tape, target = load_tape()
    windows = TapeWindows(tape, target)
    sampler = BatchSampler(RandomSampler(windows), BATCH, drop_last=True)
    loader = DataLoader(windows, sampler=sampler, batch_size=None)
    model = FlowForecaster()
    model.fit_scaling(tape)

    folder = tempfile.mkdtemp(prefix="tape_forecasting_")
    keep = ModelCheckpoint(dirpath=folder, filename="flow-{step}", every_n_train_steps=20, save_top_k=1)
    trainer = L.Trainer(
        max_steps=500,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        gradient_clip_val=1.0,
        default_root_dir=folder,
        callbacks=[WarmStart(tape), Progress(), keep],
    )
    try:
        trainer.fit(model, loader)
        print("last checkpoint:", keep.best_model_path.rsplit("/", 1)[-1])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
