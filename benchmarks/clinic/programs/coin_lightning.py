# /// clinic
# expect = ["PD07.float64"]
# allow = ["PD08.allocator-churn"]
# stratum = "twins"
# domain = "images"
# sizes = {MINTS = [6, 20], BATCH = [28, 40]}
# severities = {WIDTH = [8, 16, 32]}
# ///
"""Tells which mint a coin is from, with Lightning."""

import logging
import time
import warnings

import lightning
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

MINTS = 10
BATCH = 32
WIDTH = 16
STEPS = 140


class Mint(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, WIDTH, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(WIDTH, 2 * WIDTH, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(3),
            nn.Flatten(),
            nn.Linear(18 * WIDTH, MINTS),
        )

    def training_step(self, batch, number):
        if self.global_step == 10:
            self.began = time.perf_counter()
        coins, mints = batch
        return nn.functional.cross_entropy(self.net(coins), mints)  # here

    def on_train_end(self):
        print(f"{BATCH * (self.global_step - 10) / (time.perf_counter() - self.began):.1f} coins/s")

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    lightning.seed_everything(5, verbose=False)
    coins = TensorDataset(torch.rand(1280, 1, 40, 40), torch.randint(0, MINTS, (1280,)))
    order = BatchSampler(RandomSampler(coins), BATCH, drop_last=True)
    trainer = lightning.Trainer(
        max_steps=STEPS,
        max_epochs=-1,
        accelerator="cpu",
        precision="64-true",  # sick here
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Mint(), DataLoader(coins, batch_size=None, sampler=order))


if __name__ == "__main__":
    main()
