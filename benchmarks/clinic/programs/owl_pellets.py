# /// clinic
# expect = ["PD15.growing-work"]
# stratum = "twins"
# domain = "owl pellets"
# ///
"""Prey species in barn owl pellets from the measurements of the bones found in each pellet (multi-label, Lightning)."""

import time
from dataclasses import dataclass

import lightning as L
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchmetrics import MetricCollection
from torchmetrics.classification import MultilabelAUROC, MultilabelAveragePrecision, MultilabelF1Score

SPECIES = (
    "Microtus arvalis",
    "Microtus agrestis",
    "Clethrionomys glareolus",
    "Apodemus sylvaticus",
    "Apodemus flavicollis",
    "Micromys minutus",
    "Sorex araneus",
    "Sorex minutus",
    "Crocidura russula",
    "Neomys fodiens",
    "Rattus norvegicus",
    "Passer domesticus",
)
ELEMENTS = ("skull", "mandible", "humerus", "femur", "tibia", "pelvis", "incisor")
MEASURES = ("length_mm", "breadth_mm", "depth_mm", "diastema_mm", "condyle_mm", "mass_mg", "wear", "curvature")
MOST_BONES = 36


@dataclass
class Settings:
    pellets: int = 6400
    batch_size: int = 40
    width: int = 56
    layers: int = 2
    epochs: int = 4
    lr: float = 1e-3
    seed: int = 41


def dissect(pellets, seed):
    """The bone list of all pellets, one row for each bone, and the species table of the pellets."""
    rng = np.random.default_rng(seed)
    share = np.array([0.30, 0.14, 0.10, 0.16, 0.06, 0.05, 0.20, 0.08, 0.14, 0.03, 0.03, 0.06])
    present = rng.uniform(size=(pellets, len(SPECIES))) < share
    empty = ~present.any(1)
    present[empty, rng.integers(0, len(SPECIES), empty.sum())] = True
    form = rng.normal(0, 1, (len(SPECIES), len(ELEMENTS), len(MEASURES)))
    form = 0.6 * form + rng.normal(0, 0.8, (len(SPECIES), 1, len(MEASURES)))
    counts = rng.integers(14, MOST_BONES + 1, pellets)
    pellet = np.repeat(np.arange(pellets), counts)
    lots = present[pellet] * rng.uniform(0.05, 1, (len(pellet), len(SPECIES)))
    species = lots.argmax(1)
    element = rng.integers(0, len(ELEMENTS), len(pellet))
    values = form[species, element] + rng.normal(0, 0.9, (len(pellet), len(MEASURES)))
    bones = pd.DataFrame(values, columns=list(MEASURES)).assign(pellet=pellet, element=element)
    return bones, pd.DataFrame(present, columns=list(SPECIES))


class Pellets(Dataset):
    """Bones of a pellet padded to the largest count: measures, element codes (0 for no bone) and the species."""

    def __init__(self, bones, present):
        place = bones.groupby("pellet").cumcount().to_numpy()
        self.measures = torch.zeros(len(present), MOST_BONES, len(MEASURES))
        self.elements = torch.zeros(len(present), MOST_BONES, dtype=torch.long)
        rows = torch.from_numpy(bones["pellet"].to_numpy(copy=True)), torch.from_numpy(place.astype(np.int64))
        self.measures[rows] = torch.from_numpy(bones[list(MEASURES)].to_numpy(np.float32))
        self.elements[rows] = torch.from_numpy(bones["element"].to_numpy(np.int64) + 1)
        self.present = torch.from_numpy(present.to_numpy().astype(np.int64))

    def __len__(self):
        return len(self.present)

    def __getitem__(self, index):
        return self.measures[index], self.elements[index], self.present[index]


def ranking_scores(prefix):
    return MetricCollection(
        {
            "map": MultilabelAveragePrecision(num_labels=len(SPECIES)),
            "auroc": MultilabelAUROC(num_labels=len(SPECIES)),
        },
        prefix=prefix,
    )


class PelletNet(L.LightningModule):
    def __init__(self, settings):
        super().__init__()
        self.settings = settings
        width = settings.width
        self.element = nn.Embedding(len(ELEMENTS) + 1, width, padding_idx=0)
        self.measure = nn.Sequential(nn.Linear(len(MEASURES), width), nn.GELU(), nn.Linear(width, width))
        layer = nn.TransformerEncoderLayer(width, 4, 3 * width, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, settings.layers, enable_nested_tensor=False)
        self.queries = nn.Parameter(torch.randn(len(SPECIES), width) * 0.05)
        self.pool = nn.MultiheadAttention(width, 4, batch_first=True)
        self.head = nn.Linear(width, 1)
        self.train_scores = ranking_scores("train_")
        self.val_scores = ranking_scores("val_")
        self.val_f1 = MultilabelF1Score(num_labels=len(SPECIES))

    def forward(self, measures, elements):
        missing = elements == 0
        bones = self.encoder(self.measure(measures) + self.element(elements), src_key_padding_mask=missing)
        queries = self.queries.expand(len(bones), -1, -1)
        species, _ = self.pool(queries, bones, bones, key_padding_mask=missing, need_weights=False)
        return self.head(species + queries).squeeze(-1)

    def training_step(self, batch, batch_idx):
        measures, elements, present = batch
        logits = self(measures, elements)
        loss = F.binary_cross_entropy_with_logits(logits, present.float())
        self.train_scores.update(logits.detach().sigmoid(), present)
        self.log("train_loss", loss)
        self.log_dict(self.train_scores.compute())  # sick here
        return loss

    def on_train_epoch_end(self):
        self.log_dict(self.train_scores.compute())  # well
        self.train_scores.reset()

    def validation_step(self, batch, batch_idx):
        measures, elements, present = batch
        logits = self(measures, elements)
        self.log("val_loss", F.binary_cross_entropy_with_logits(logits, present.float()))
        self.val_scores.update(logits.sigmoid(), present)
        self.val_f1.update(logits.sigmoid(), present)

    def on_validation_epoch_end(self):
        self.log_dict(self.val_scores.compute())
        self.log("val_f1", self.val_f1.compute())
        self.val_scores.reset()
        self.val_f1.reset()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.settings.lr, weight_decay=0.01)
        total = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.settings.lr, total_steps=total)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class FieldBook(Callback):
    """Keeps the scores of every epoch and the time of the whole training."""

    def on_train_start(self, trainer, module):
        self.began, self.pages = time.perf_counter(), []

    def on_train_epoch_end(self, trainer, module):
        self.pages.append({name: round(value.item(), 3) for name, value in trainer.callback_metrics.items()})

    def on_train_end(self, trainer, module):
        self.rate = trainer.global_step * module.settings.batch_size / (time.perf_counter() - self.began)


def main():
    settings = Settings()
    L.seed_everything(settings.seed)
    bones, present = dissect(settings.pellets, settings.seed)
    cut = settings.pellets * 9 // 10
    early = bones["pellet"] < cut
    train = Pellets(bones[early], present[:cut])
    held = Pellets(bones[~early].assign(pellet=lambda frame: frame["pellet"] - cut), present[cut:])
    book = FieldBook()
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=settings.epochs,
        gradient_clip_val=1.0,
        logger=TensorBoardLogger("runs", name="owl_pellets"),
        callbacks=[ModelCheckpoint(monitor="val_map", mode="max"), book],
        enable_progress_bar=False,
        num_sanity_val_steps=0,
        log_every_n_steps=25,
    )
    trainer.fit(
        PelletNet(settings),
        DataLoader(train, batch_size=settings.batch_size, shuffle=True, drop_last=True),
        DataLoader(held, batch_size=2 * settings.batch_size),
    )
    print(pd.DataFrame(book.pages).T.to_string())
    print(f"{book.rate:.1f} pellets/s")


if __name__ == "__main__":
    main()
