# /// clinic
# expect = ["PD05.padded-batches"]
# stratum = "twins"
# domain = "carillon keyboards"
# ///
# %% [markdown]
# # Which school of carillon playing does a tune come from?
# Strokes on the batons and pedals of the keyboard are read as tokens; a small encoder tells the school.

# %%
import time
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

SCHOOLS = ["mechelen", "utrecht", "douai", "barcelona", "springfield", "bergen"]
PAD, START, END, REST = 0, 1, 2, 3
BELLS = 50
FIRST_BATON, FIRST_PEDAL = 4, 4 + BELLS
VOCABULARY = FIRST_PEDAL + 24
MAX_STROKES = 208


# %%
@dataclass
class Settings:
    tunes: int = 1320
    held: int = 192
    batch: int = 12
    epochs: int = 3
    hidden: int = 64
    layers: int = 3
    heads: int = 4
    lr: float = 8e-4
    seed: int = 23
    steps_of: dict = field(default_factory=lambda: {n: np.roll([2, 1, 2, 2, 1, 2, 2], n) for n in range(len(SCHOOLS))})


def compose(school, cfg, gen):
    """A tune as a list of tokens: a walk on the scale of the school with its habits of pedal and rest."""
    length = int(np.clip(gen.lognormal(3.9, 0.45), 16, MAX_STROKES - 2))
    ladder = np.concatenate([[0], np.cumsum(np.tile(cfg.steps_of[school], 5))])
    ladder = ladder[ladder < BELLS]
    place, tokens = len(ladder) // 2, [START]
    leap = 1 + school % 3
    pedal_every = 3 + school // 2
    for n in range(length):
        place = int(np.clip(place + gen.integers(-leap, leap + 1), 0, len(ladder) - 1))
        if n % pedal_every == 0:
            tokens.append(FIRST_PEDAL + int(ladder[place]) % 24)
        elif gen.random() < 0.08:
            tokens.append(REST)
        else:
            tokens.append(FIRST_BATON + int(ladder[place]))
    return tokens[: MAX_STROKES - 1] + [END]


# %%
class TuneBook(Dataset):
    def __init__(self, count, cfg, seed):
        gen = np.random.default_rng(seed)
        self.schools = gen.integers(0, len(SCHOOLS), count).tolist()
        self.tunes = [compose(school, cfg, gen) for school in self.schools]

    def __len__(self):
        return len(self.tunes)

    def __getitem__(self, n):
        return {"strokes": self.tunes[n], "school": self.schools[n]}


class BatonCollator:
    """Makes a batch of tunes of different lengths."""

    def __init__(self, most):
        self.most = most

    def __call__(self, tunes):
        width = self.most  # sick here
        width = min(self.most, max(len(tune["strokes"]) for tune in tunes))  # well
        tokens = torch.full((len(tunes), width), PAD, dtype=torch.long)
        mask = torch.zeros((len(tunes), width), dtype=torch.long)
        for row, tune in enumerate(tunes):
            strokes = tune["strokes"][:width]
            tokens[row, : len(strokes)] = torch.tensor(strokes)
            mask[row, : len(strokes)] = 1
        schools = torch.tensor([tune["school"] for tune in tunes])
        return {"input_ids": tokens, "attention_mask": mask, "labels": schools}


# %%
class Clock(TrainerCallback):
    def __init__(self):
        self.began = self.ended = None

    def on_step_begin(self, args, state, control, **kwargs):
        if self.began is None:
            self.began = time.perf_counter()

    def on_train_end(self, args, state, control, **kwargs):
        self.ended = time.perf_counter()


def scores(prediction):
    guess = prediction.predictions.argmax(-1)
    right = guess == prediction.label_ids
    each = [right[prediction.label_ids == n].mean() for n in range(len(SCHOOLS)) if (prediction.label_ids == n).any()]
    return {"accuracy": float(right.mean()), "balanced_accuracy": float(np.mean(each))}


# %%
def main():
    cfg = Settings()
    torch.manual_seed(cfg.seed)
    book, held = TuneBook(cfg.tunes, cfg, cfg.seed), TuneBook(cfg.held, cfg, cfg.seed + 1)
    lengths = [len(tune) for tune in book.tunes]
    print(f"{len(book)} tunes, strokes: median {np.median(lengths):.0f}, longest {max(lengths)}")

    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=cfg.hidden,
            num_hidden_layers=cfg.layers,
            num_attention_heads=cfg.heads,
            intermediate_size=2 * cfg.hidden,
            attention_probs_dropout_prob=0.0,
            max_position_embeddings=MAX_STROKES,
            pad_token_id=PAD,
            num_labels=len(SCHOOLS),
        )
    )
    clock = Clock()
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir="carillon",
            per_device_train_batch_size=cfg.batch,
            per_device_eval_batch_size=2 * cfg.batch,
            num_train_epochs=cfg.epochs,
            learning_rate=cfg.lr,
            warmup_steps=30,
            weight_decay=0.01,
            logging_steps=60,
            eval_strategy="epoch",
            save_strategy="epoch",
            save_total_limit=1,
            remove_unused_columns=False,
            dataloader_pin_memory=False,
            disable_tqdm=True,
            report_to=[],
            use_cpu=True,
            seed=cfg.seed,
        ),
        train_dataset=book,
        eval_dataset=held,
        data_collator=BatonCollator(MAX_STROKES),
        compute_metrics=scores,
        callbacks=[clock],
    )
    trainer.train()
    rate = cfg.epochs * len(book) / (clock.ended - clock.began)
    print(f"{rate:.1f} tunes/s")


main()
