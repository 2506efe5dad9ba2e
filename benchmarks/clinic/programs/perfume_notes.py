# /// clinic
# expect = ["PD05.mergeable-accumulation", "PD05.batch-too-small"]
# stratum = "twins"
# domain = "perfume notes"
# allow = ["PD05.padded-batches"]
# ///
"""Masked-note pretraining on perfume formulas with a small BERT and Accelerate.

A formula is a list of notes from head to base; the accords behind it (citrus, chypre, fougere) decide which notes
go together. The model learns to fill in the notes that were masked; its embeddings are used later to suggest blends.
"""

import random
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration, set_seed
from torch.utils.data import DataLoader, Dataset
from torchmetrics.classification import MulticlassAccuracy
from torchmetrics.aggregation import MeanMetric
from transformers import BertConfig, BertForMaskedLM, get_cosine_schedule_with_warmup

PAD, MASK, HEAD, HEART, BASE = range(5)
NOTES = 240
VOCABULARY = 5 + NOTES
IGNORE = -100


@dataclass
class Recipe:
    formulas: int = 2176
    held_out: int = 512
    accords: int = 18
    longest: int = 28
    hidden: int = 128
    layers: int = 3
    heads: int = 4
    masked: float = 0.2
    learning_rate: float = 8e-4
    epochs: int = 3
    train_batch: int = 8  # sick here
    accumulation: int = 4  # sick here
    train_batch: int = 32  # well
    accumulation: int = 1  # well
    eval_batch: int = 128
    warmup: int = 20
    clip: float = 1.0
    seed: int = 17
    project: str = "perfume_runs"


class Formulas(Dataset):
    """Formulas composed from one to three accords; head, heart and base sections start with their own token."""

    def __init__(self, recipe, count, seed):
        rng = np.random.default_rng(seed)
        book = np.random.default_rng(recipe.seed)
        third = NOTES // 3
        tables = [book.dirichlet(np.full(third, 0.06), recipe.accords) for _ in range(3)]
        self.rows = []
        for _ in range(count):
            blend = rng.choice(recipe.accords, rng.integers(1, 4), replace=False)
            row = []
            for section, table in enumerate(tables):
                weights = table[blend].mean(0)
                room = (recipe.longest - 3) // 3
                notes = rng.choice(third, rng.integers(room - 3, room + 1), p=weights)
                row += [HEAD + section, *(5 + section * third + np.unique(notes))]
            self.rows.append(torch.tensor(row, dtype=torch.long))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


class NoteMasking:
    """Pads the formulas of a batch and masks a share of the notes, BERT style (80 % mask, 10 % other, 10 % kept)."""

    def __init__(self, share, longest):
        self.share, self.longest = share, longest

    def __call__(self, rows):
        ids = torch.full((len(rows), self.longest), PAD)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = row
        attention = (ids != PAD).long()
        chosen = (torch.rand(ids.shape) < self.share) & (ids > BASE)
        labels = ids.masked_fill(~chosen, IGNORE)
        dice = torch.rand(ids.shape)
        ids = ids.masked_fill(chosen & (dice < 0.8), MASK)
        other = torch.randint(5, VOCABULARY, ids.shape)
        ids = torch.where(chosen & (dice > 0.9), other, ids)
        return {"input_ids": ids, "attention_mask": attention, "labels": labels}


def build_model(recipe):
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=recipe.hidden,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        intermediate_size=4 * recipe.hidden,
        max_position_embeddings=recipe.longest,
        type_vocab_size=1,
        pad_token_id=PAD,
    )
    return BertForMaskedLM(config)


@torch.no_grad()
def evaluate(accelerator, model, loader):
    model.eval()
    accuracy, loss = MulticlassAccuracy(VOCABULARY, average="micro", ignore_index=IGNORE), MeanMetric()
    for batch in loader:
        out = model(**batch)
        logits, labels = accelerator.gather_for_metrics((out.logits, batch["labels"]))
        accuracy.update(logits.flatten(0, 1), labels.flatten())
        loss.update(out.loss)
    model.train()
    return {"eval/accuracy": accuracy.compute().item(), "eval/loss": loss.compute().item()}


def main():
    recipe = Recipe()
    set_seed(recipe.seed)
    accelerator = Accelerator(
        cpu=True,
        gradient_accumulation_steps=recipe.accumulation,
        log_with="tensorboard",
        project_config=ProjectConfiguration(project_dir=recipe.project, logging_dir=recipe.project),
    )
    accelerator.init_trackers("masked_notes", config=asdict(recipe))

    collate = NoteMasking(recipe.masked, recipe.longest)
    train = Formulas(recipe, recipe.formulas, recipe.seed + 1)
    held = Formulas(recipe, recipe.held_out, recipe.seed + 2)
    train_loader = DataLoader(train, batch_size=recipe.train_batch, shuffle=True, collate_fn=collate, drop_last=True)
    eval_loader = DataLoader(held, batch_size=recipe.eval_batch, collate_fn=collate)

    model = build_model(recipe)
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, weight_decay=0.01)
    updates = recipe.epochs * len(train_loader) // recipe.accumulation
    scheduler = get_cosine_schedule_with_warmup(optimizer, recipe.warmup, updates)
    model, optimizer, train_loader, eval_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, eval_loader, scheduler
    )

    began, seen, update = time.perf_counter(), 0, 0
    for epoch in range(recipe.epochs):
        for batch in train_loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), recipe.clip)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            seen += len(batch["input_ids"])
            if accelerator.sync_gradients:
                update += 1
                if update % 20 == 0:
                    accelerator.log({"train/loss": loss.item(), "train/lr": scheduler.get_last_lr()[0]}, step=update)
        scores = evaluate(accelerator, model, eval_loader)
        accelerator.log(scores, step=update)
        accelerator.print(f"epoch {epoch + 1}: {update} updates,", {k: round(v, 4) for k, v in scores.items()})
    accelerator.save_model(model, Path(recipe.project) / "final")
    rate = seen / (time.perf_counter() - began)
    accelerator.end_training()
    example = random.choice(held.rows)
    accelerator.print("a held-out formula:", example.tolist())
    print(f"{rate:.1f} formulas/s")


if __name__ == "__main__":
    main()
