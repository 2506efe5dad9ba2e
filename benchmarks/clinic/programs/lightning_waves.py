# /// clinic
# expect = ["PD04.explicit-collect"]
# stratum = "twins"
# domain = "audio"
# ///
"""Predict the pitch of noisy tones with a 1-d convolutional network in a LightningModule."""

import gc
import logging
import time
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class PitchNet(L.LightningModule):
    def __init__(self, width=48, lr=1e-3):
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(
            nn.Conv1d(1, width, 16, stride=4),
            nn.ReLU(),
            nn.Conv1d(width, width, 8, stride=2),
            nn.ReLU(),
            nn.Conv1d(width, 2 * width, 8, stride=2),
            nn.ReLU(),
            nn.Conv1d(2 * width, 2 * width, 4, stride=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
            nn.Linear(2 * width, 1),
        )

    def forward(self, x):
        return self.net(x.unsqueeze(1)).squeeze(-1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.smooth_l1_loss(self(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_error", (self(x) - y).abs().mean(), prog_bar=False)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)


class Housekeeping(L.Callback):
    """Throughput, and what else is to be done after a batch."""

    def __init__(self, batch, skip=8):
        self.batch, self.skip = batch, skip
        self.count, self.start, self.stop = 0, None, None

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.count += 1
        gc.collect()  # sick here
        now = time.perf_counter()
        if self.count == self.skip:
            self.start = now
        self.stop = now

    def rate(self):
        return (self.count - self.skip) * self.batch / (self.stop - self.start)


def tones(n, length=2048, seed=0):
    g = torch.Generator().manual_seed(seed)
    pitch = torch.rand(n, generator=g)
    t = torch.arange(length) / length
    x = torch.sin(2 * torch.pi * (20 + 200 * pitch[:, None]) * t)
    return TensorDataset(x + 0.2 * torch.randn(n, length, generator=g), pitch)


def main():
    L.seed_everything(1, verbose=False)
    batch = 96
    train = DataLoader(tones(batch * 30), batch_size=batch, shuffle=True)
    valid = DataLoader(tones(batch * 2, seed=1), batch_size=batch)
    house = Housekeeping(batch)
    trainer = L.Trainer(
        max_steps=90,
        accelerator="cpu",
        devices=1,
        callbacks=[house],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        check_val_every_n_epoch=1,
    )
    trainer.fit(PitchNet(), train, valid)
    print("validation error", round(float(trainer.callback_metrics.get("val_error", float("nan"))), 4))
    print(f"{house.rate():.1f} clips/s")


if __name__ == "__main__":
    main()
