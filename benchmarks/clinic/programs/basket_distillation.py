# /// clinic
# expect = ["PD10.ignored-scores"]
# stratum = "twins"
# domain = "retail baskets, knowledge distillation"
# ///
"""Distils a transformer that fills in masked items of shopping sessions into a smaller student."""

import time
from dataclasses import dataclass

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class SessionConfig:
    items: int = 4000
    topics: int = 60
    sessions: int = 6400
    length: int = 24
    masked: int = 4
    batch_size: int = 32
    epochs: int = 2
    lr: float = 1e-3
    temperature: float = 2.0
    alpha: float = 0.7
    seed: int = 31


def make_sessions(cfg):
    """Item sequences drawn from a few topics each, with a fixed number of masked positions."""
    rng = np.random.default_rng(cfg.seed)
    per_topic = cfg.items // cfg.topics
    topic = rng.integers(0, cfg.topics, size=(cfg.sessions, 2))
    which = rng.integers(0, 2, size=(cfg.sessions, cfg.length))
    rank = rng.geometric(0.08, size=(cfg.sessions, cfg.length)) % per_topic
    items = np.take_along_axis(topic, which, axis=1) * per_topic + rank + 1
    slots = np.argsort(rng.random((cfg.sessions, cfg.length)), axis=1)[:, : cfg.masked]
    slots = np.sort(slots, axis=1)
    targets = np.take_along_axis(items, slots, axis=1) - 1
    inputs = items.copy()
    np.put_along_axis(inputs, slots, cfg.items + 1, axis=1)
    return TensorDataset(*(torch.from_numpy(a.astype(np.int64)) for a in (inputs, slots, targets)))


class SessionModel(nn.Module):
    def __init__(self, items, length, width, layers, heads):
        super().__init__()
        self.item = nn.Embedding(items + 2, width, padding_idx=0)
        self.position = nn.Parameter(torch.randn(length, width) * 0.02)
        block = nn.TransformerEncoderLayer(
            width, heads, 2 * width, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.scores = nn.Linear(width, items)

    def forward(self, inputs, slots):
        hidden = self.norm(self.encoder(self.item(inputs) + self.position))
        rows = torch.arange(len(inputs)).unsqueeze(1)
        scores = self.scores(hidden)  # sick
        return scores[rows, slots]  # sick here
        return self.scores(hidden[rows, slots])  # well


class Distiller(L.LightningModule):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.teacher = SessionModel(cfg.items, cfg.length, width=128, layers=3, heads=4)
        self.student = SessionModel(cfg.items, cfg.length, width=64, layers=2, heads=4)
        self.teacher.requires_grad_(False)

    def training_step(self, batch, batch_idx):
        inputs, slots, targets = batch
        with torch.no_grad():
            wanted = self.teacher(inputs, slots)
        got = self.student(inputs, slots)
        t = self.cfg.temperature
        soft = F.kl_div(
            F.log_softmax(got.flatten(0, 1) / t, dim=-1),
            F.log_softmax(wanted.flatten(0, 1) / t, dim=-1),
            log_target=True,
            reduction="batchmean",
        )
        hard = F.cross_entropy(got.flatten(0, 1), targets.flatten())
        return self.cfg.alpha * t * t * soft + (1 - self.cfg.alpha) * hard

    def on_train_start(self):
        self.teacher.eval()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.student.parameters(), lr=self.cfg.lr)


class Progress(L.Callback):
    def __init__(self, every=80):
        self.every = every
        self.begin = None

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.global_step == 5:
            self.begin = time.perf_counter()
        if trainer.global_step % self.every == 0:
            print(f"step {trainer.global_step:4d}  loss {outputs['loss'].item():.4f}")

    def on_train_end(self, trainer, module):
        self.rate = (trainer.global_step - 5) / (time.perf_counter() - self.begin)


def main():
    cfg = SessionConfig()
    L.seed_everything(cfg.seed, verbose=False)
    loader = DataLoader(make_sessions(cfg), batch_size=cfg.batch_size, shuffle=True, drop_last=True)
    progress = Progress()
    trainer = L.Trainer(
        max_epochs=cfg.epochs,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[progress],
    )
    trainer.fit(Distiller(cfg), loader)
    print(f"{progress.rate:.2f} steps/s")


if __name__ == "__main__":
    main()
