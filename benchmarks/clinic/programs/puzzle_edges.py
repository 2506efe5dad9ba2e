# /// clinic
# expect = ["PD10.ignored-scores"]
# stratum = "twins"
# domain = "jigsaw puzzles"
# ///
# Masked piece modelling for jigsaw boards: guess which catalogue piece belongs into the empty cells of a board.
import time
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

IGNORE = -100


class Catalogue:
    """Named constructors; configs refer to them as strings."""

    def __init__(self, kind):
        self.kind, self.entries = kind, {}

    def __call__(self, name):
        return lambda thing: self.entries.setdefault(name, thing)

    def get(self, name):
        try:
            return self.entries[name]
        except KeyError:
            raise KeyError(f"unknown {self.kind} {name!r}; known: {sorted(self.entries)}") from None


readouts, mixers = Catalogue("readout"), Catalogue("mixer")


@dataclass(frozen=True)
class BoardSpec:
    rows: int = 9
    cols: int = 11
    tints: int = 64
    outlines: int = 64
    hidden_share: float = 0.15

    @property
    def pieces(self):
        return self.tints * self.outlines

    @property
    def mask_id(self):
        return self.pieces


@dataclass(frozen=True)
class TrunkSpec:
    width: int = 128
    heads: int = 4
    layers: int = 3
    mixer: str = "prenorm"
    readout: str = "every_cell"  # sick here
    readout: str = "masked_cells"  # well


@dataclass(frozen=True)
class Experiment:
    board: BoardSpec = field(default_factory=BoardSpec)
    trunk: TrunkSpec = field(default_factory=TrunkSpec)
    boards: int = 2880
    batch: int = 12
    epochs: int = 1
    lr: float = 7e-4
    seed: int = 5

    def scaled(self, **changes):
        return replace(self, **changes)


class Boards(Dataset):
    """Boards cut from smooth pictures: the tint follows the picture, the outline follows the cutter's pattern."""

    def __init__(self, spec, count, seed):
        rng = np.random.default_rng(seed)
        r, c = np.meshgrid(np.arange(spec.rows), np.arange(spec.cols), indexing="ij")
        slope = rng.normal(0, 2.5, (count, 2, 1, 1))
        tint = (slope[:, 0] * r + slope[:, 1] * c + rng.uniform(0, spec.tints, (count, 1, 1))) % spec.tints
        cutter = rng.integers(0, 8, (count, 1, 1))
        outline = (cutter * 8 + (r * 3 + c * 5) % 8) % spec.outlines
        pieces = tint.astype(np.int64) * spec.outlines + outline
        self.pieces = torch.from_numpy(pieces.reshape(count, -1))
        self.spec = spec

    def __len__(self):
        return len(self.pieces)

    def __getitem__(self, i):
        return self.pieces[i]


class HideCells:
    def __init__(self, spec):
        self.spec = spec

    def __call__(self, rows):
        pieces = torch.stack(rows)
        hidden = torch.rand(pieces.shape) < self.spec.hidden_share
        hidden[:, 0] = True
        return {
            "cells": pieces.masked_fill(hidden, self.spec.mask_id),
            "labels": pieces.masked_fill(~hidden, IGNORE),
        }


@mixers("prenorm")
def prenorm(trunk):
    layer = nn.TransformerEncoderLayer(
        trunk.width, trunk.heads, 2 * trunk.width, 0.0, "gelu", batch_first=True, norm_first=True
    )
    return nn.TransformerEncoder(layer, trunk.layers, enable_nested_tensor=False)


@readouts("every_cell")
def every_cell(hidden, labels):
    return hidden.flatten(0, 1), labels.flatten()


@readouts("masked_cells")
def masked_cells(hidden, labels):
    wanted = labels.flatten() != IGNORE
    return hidden.flatten(0, 1)[wanted], labels.flatten()[wanted]


class BoardModel(nn.Module):
    def __init__(self, board, trunk):
        super().__init__()
        self.pieces = nn.Embedding(board.pieces + 1, trunk.width)
        self.places = nn.Parameter(torch.randn(board.rows * board.cols, trunk.width) * 0.02)
        self.trunk = mixers.get(trunk.mixer)(trunk)
        self.norm = nn.LayerNorm(trunk.width)
        self.head = nn.Linear(trunk.width, board.pieces)
        self.readout = readouts.get(trunk.readout)

    def forward(self, cells, labels):
        hidden = self.norm(self.trunk(self.pieces(cells) + self.places))
        chosen, targets = self.readout(hidden, labels)
        logits = self.head(chosen)
        return {"loss": F.cross_entropy(logits, targets, ignore_index=IGNORE)}


class Odometer(TrainerCallback):
    def __init__(self, batch):
        self.batch, self.first, self.rate = batch, None, 0.0

    def on_step_begin(self, args, state, control, **kwargs):
        self.first = self.first or time.perf_counter()

    def on_train_end(self, args, state, control, **kwargs):
        self.rate = self.batch * state.global_step / (time.perf_counter() - self.first)

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        print(f"step {state.global_step}: eval loss {metrics['eval_loss']:.3f}")


@lru_cache
def arguments(exp):
    return TrainingArguments(
        output_dir="puzzle_runs",
        per_device_train_batch_size=exp.batch,
        per_device_eval_batch_size=exp.batch,
        num_train_epochs=exp.epochs,
        learning_rate=exp.lr,
        lr_scheduler_type="cosine",
        warmup_steps=20,
        eval_strategy="steps",
        eval_steps=80,
        save_strategy="no",
        logging_steps=40,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
        label_names=["labels"],
        prediction_loss_only=True,
        seed=exp.seed,
    )


def main(exp=Experiment()):
    set_seed(exp.seed)
    odometer = Odometer(exp.batch)
    Trainer(
        model=BoardModel(exp.board, exp.trunk),
        args=arguments(exp),
        data_collator=HideCells(exp.board),
        train_dataset=Boards(exp.board, exp.boards, exp.seed),
        eval_dataset=Boards(exp.board, 96, exp.seed + 1),
        callbacks=[odometer],
    ).train()
    return odometer.rate


if __name__ == "__main__":
    rate = main()
    print(f"{rate:.1f} samples/s")
