# /// clinic
# expect = ["PD14.frequent-checkpoints"]
# stratum = "twins"
# domain = "recommendation, PyTorch Lightning"
# ///
"""Trains a next-item model for shop sessions on top of fixed item content vectors, with Lightning."""

import logging
import tempfile
import time
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ITEMS = 80_000
CONTENT = 256
SESSION = 20
BATCH = 64
EPOCHS = 21
STEPS_PER_EPOCH = 30


class SessionModel(L.LightningModule):
    def __init__(self, content, hidden=128, temperature=0.1, lr=1e-3, weight_decay=0.01):
        super().__init__()
        self.save_hyperparameters()  # sick here
        self.save_hyperparameters(ignore=["content"])  # well
        self.register_buffer("content", content, persistent=False)
        self.project = nn.Sequential(nn.Linear(content.shape[1], hidden), nn.GELU(), nn.Linear(hidden, hidden))
        self.encoder = nn.GRU(hidden, hidden, batch_first=True)
        self.query = nn.Linear(hidden, hidden)

    def items(self, ids):
        return self.project(self.content[ids])

    def forward(self, sessions):
        states, _ = self.encoder(self.items(sessions))
        return self.query(states[:, -1])

    def loss(self, batch):
        sessions, target = batch
        query = F.normalize(self(sessions), dim=-1)
        candidates = F.normalize(self.items(target), dim=-1)
        logits = query @ candidates.t() / self.hparams.temperature
        return F.cross_entropy(logits, torch.arange(len(target), device=logits.device))

    def training_step(self, batch, batch_idx):
        return self.loss(batch)

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.loss(batch), prog_bar=False)

    def on_validation_epoch_end(self):
        if self.current_epoch % 4 == 0 and "val_loss" in self.trainer.callback_metrics:
            print(f"epoch {self.current_epoch}: val_loss {self.trainer.callback_metrics['val_loss'].item():.4f}")

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=self.hparams.weight_decay)


class Throughput(Callback):
    def __init__(self):
        self.start = None
        self.first = 5

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if trainer.global_step == self.first:
            self.start = time.perf_counter()

    def report(self, steps):
        print(f"{(steps - self.first) / (time.perf_counter() - self.start):.2f} steps/s")


class SessionData(L.LightningDataModule):
    def __init__(self, topics=200):
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        topic_vectors = torch.randn(topics, CONTENT, generator=generator)
        self.topic_of = torch.arange(ITEMS) % topics
        self.content = topic_vectors[self.topic_of] + 0.7 * torch.randn(ITEMS, CONTENT, generator=generator)
        self.train_set = self.sample(STEPS_PER_EPOCH * BATCH, topics, generator)
        self.val_set = self.sample(2 * BATCH, topics, generator)

    @staticmethod
    def sample(count, topics, generator):
        topic = torch.randint(topics, (count, 1), generator=generator)
        rank = torch.randint(ITEMS // topics, (count, SESSION + 1), generator=generator)
        stray = torch.randint(ITEMS, (count, SESSION + 1), generator=generator)
        keep = torch.rand(count, SESSION + 1, generator=generator) < 0.8
        ids = torch.where(keep, rank * topics + topic, stray)
        return TensorDataset(ids[:, :-1].contiguous(), ids[:, -1].contiguous())

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=BATCH, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=BATCH)


def main():
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    L.seed_everything(5, verbose=False)
    data = SessionData()
    model = SessionModel(data.content)
    throughput = Throughput()
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = ModelCheckpoint(
            dirpath=folder, filename="{epoch:02d}", every_n_epochs=1, save_top_k=1, save_last=True
        )
        trainer = L.Trainer(
            accelerator="cpu",
            devices=1,
            max_epochs=EPOCHS,
            logger=False,
            callbacks=[checkpoint, throughput],
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
        trainer.fit(model, datamodule=data)
        throughput.report(trainer.global_step)


if __name__ == "__main__":
    main()
