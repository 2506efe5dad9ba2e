# /// clinic
# expect = ["PD04"]
# stratum = "twins"
# domain = "text sentiment"
# ///
"""Train a sentiment classifier on made-up reviews."""

import gc
import logging
import random
import time
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader

REVIEWS = 6000
VOCAB = 3000
MAX_LEN = 80
WIDTH = 96
LAYERS = 2
BATCH = 32
STEPS = 280

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def make_reviews(seed=5):
    rng = random.Random(seed)
    rows = []
    for _ in range(REVIEWS):
        label = rng.randint(0, 1)
        words = [
            min(VOCAB - 1, 1 + int(rng.expovariate(1 / 400)) + label * rng.randint(0, 60))
            for _ in range(rng.randint(30, MAX_LEN))
        ]
        rows.append({"ids": words, "label": label, "meta": {"stars": [label * 4 + 1]}})
    return rows


def collate(rows):
    ids = nn.utils.rnn.pad_sequence([torch.tensor(r["ids"]) for r in rows], batch_first=True)
    return ids, torch.tensor([r["label"] for r in rows])


def release(tag, history):
    """Gives unused memory back and notes how much tensors hold."""
    history[tag] = history.get(tag, 0) + 1
    gc.collect()  # sick here


class MemoryGuard(L.Callback):
    def __init__(self, every=4):
        self.every = every
        self.history = {}

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if batch_idx % self.every == 0:
            release("batch", self.history)

    def on_train_end(self, trainer, module):
        gc.collect()


class Clock(L.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.global_step == 20:
            self.start = time.perf_counter()
        elif trainer.global_step == STEPS:
            self.rate = (STEPS - 20) / (time.perf_counter() - self.start)


class Sentiment(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH, padding_idx=0)
        self.place = nn.Parameter(0.02 * torch.randn(MAX_LEN, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, ids):
        pad = ids == 0
        h = self.encoder(self.embed(ids) + self.place[: ids.shape[1]], src_key_padding_mask=pad)
        keep = (~pad).unsqueeze(2)
        return self.head((h * keep).sum(1) / keep.sum(1))

    def training_step(self, batch, batch_idx):
        ids, labels = batch
        return nn.functional.cross_entropy(self(ids), labels)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=5e-4, fused=True)


def main():
    L.seed_everything(7, verbose=False)
    loader = DataLoader(make_reviews(), batch_size=BATCH, shuffle=True, drop_last=True, collate_fn=collate)
    clock = Clock()
    trainer = L.Trainer(
        accelerator="cpu",
        max_steps=STEPS,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[MemoryGuard(), clock],
    )
    trainer.fit(Sentiment(), loader)
    print(f"{clock.rate:.1f} steps/s")


if __name__ == "__main__":
    main()
