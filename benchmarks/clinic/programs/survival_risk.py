# /// clinic
# expect = ["PD20"]
# stratum = "twins"
# domain = "survival analysis"
# ///
"""Trains a Cox proportional hazards network on synthetic patients with Lightning."""

import logging
import time
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

PATIENTS = 24_000
HOLDOUT = 900
FEATURES = 48
WIDTH = 384
BATCH = 480
EPOCHS = 11
WARMUP = 20

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def patients(n, generator):
    x = torch.randn(n, FEATURES, generator=generator)
    hazard = (0.6 * x[:, 0] - 0.4 * x[:, 1] * x[:, 2] + 0.3 * x[:, 3].abs()).exp()
    died = -torch.rand(n, generator=generator).log() / hazard
    left = -torch.rand(n, generator=generator).log() / 0.5
    return x, torch.minimum(died, left), died <= left


def concordance(risk, at, event):
    """Share of comparable pairs whose risks are ordered as their times are."""
    comparable = (at[:, None] < at[None]) & event[:, None]
    ahead = (risk[:, None] > risk[None]).float()
    tied = (risk[:, None] == risk[None]).float()
    return ((ahead + 0.5 * tied) * comparable).sum() / comparable.sum()


class Cox(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(FEATURES, WIDTH),
            nn.SELU(),
            nn.AlphaDropout(0.1),
            nn.Linear(WIDTH, WIDTH),
            nn.SELU(),
            nn.AlphaDropout(0.1),
            nn.Linear(WIDTH, WIDTH),
            nn.SELU(),
            nn.AlphaDropout(0.1),
            nn.Linear(WIDTH, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(-1)

    def training_step(self, batch, batch_idx):
        x, at, event = batch
        order = at.argsort(descending=True)
        risk, event = self(x[order]), event[order]
        loss = -((risk - risk.logcumsumexp(0)) * event).sum() / event.sum()
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=5e-4, weight_decay=1e-3, fused=True)


class HoldoutScore(L.Callback):
    def __init__(self, x, at, event):
        self.x, self.at, self.event = x, at, event

    @torch.no_grad()
    def score(self, module):
        module.eval()
        risk = module(self.x)
        module.train()
        return concordance(risk, self.at, self.event)

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):  # sick
        module.log("c_index", self.score(module), prog_bar=True)  # sick here

    def on_train_epoch_end(self, trainer, module):  # well
        module.log("c_index", self.score(module), prog_bar=True)  # well


class Clock(L.Callback):
    began = None
    took = 0.0

    def on_train_batch_start(self, trainer, *args):
        if trainer.global_step == WARMUP and self.began is None:
            self.began = time.perf_counter()

    def on_train_end(self, trainer, *args):
        self.took = time.perf_counter() - self.began
        self.steps = trainer.global_step - WARMUP


def main():
    L.seed_everything(7, verbose=False)
    g = torch.Generator().manual_seed(7)
    train = TensorDataset(*patients(PATIENTS, g))
    batches = BatchSampler(RandomSampler(train, generator=g), BATCH, drop_last=True)
    loader = DataLoader(train, sampler=batches, batch_size=None)
    clock = Clock()
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=EPOCHS,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[HoldoutScore(*patients(HOLDOUT, g)), clock],
    )
    trainer.fit(Cox(), loader)
    print(f"{clock.steps / clock.took:.1f} steps/s")


if __name__ == "__main__":
    main()
