# /// clinic
# expect = ["PD05.batch-too-small"]
# allow = ["PD08.allocator-churn"]
# stratum = "twins"
# beyond = true
# domain = "text"
# sizes = {HIDDEN = [560, 640], TOPICS = [10, 30]}
# severities = {SIZE = [64, 16, 6]}
# ///
"""Sorts articles into topics by their weighted terms, with Lightning."""

import logging
import time
import warnings

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TERMS = 1000
HIDDEN = 600
TOPICS = 20
SIZE = 16


class Articles(Dataset):
    def __init__(self, count):
        generator = torch.Generator().manual_seed(9)
        self.terms = torch.rand(count, TERMS, generator=generator)
        self.topics = torch.randint(0, TOPICS, (count,), generator=generator)

    def __len__(self):
        return len(self.topics)

    def __getitems__(self, indices):
        return self.terms[indices], self.topics[indices]


class Sorter(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(TERMS, HIDDEN), nn.ReLU(), nn.Dropout(0.2), nn.Linear(HIDDEN, HIDDEN), nn.ReLU()
        )
        self.head = nn.Linear(HIDDEN, TOPICS)

    def training_step(self, batch, number):
        terms, topics = batch
        return nn.functional.cross_entropy(self.head(self.net(terms)), topics)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class Rate(lightning.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, number):
        if trainer.global_step == 20:
            self.seen, self.began = 0, time.perf_counter()
        elif trainer.global_step > 20:
            self.seen += len(batch[1])

    def on_train_end(self, trainer, module):
        print(f"{self.seen / (time.perf_counter() - self.began):.1f} articles/s")


def main():
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    lightning.seed_everything(0, verbose=False)
    size, steps = SIZE, 400  # sick
    size, steps = 512, 110  # well
    loader = DataLoader(Articles(8192), batch_size=size, shuffle=True, collate_fn=lambda batch: batch)  # here
    trainer = lightning.Trainer(
        max_steps=steps,
        max_epochs=-1,
        accelerator="cpu",
        callbacks=[Rate()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Sorter(), loader)


if __name__ == "__main__":
    main()
