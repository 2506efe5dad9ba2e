# /// clinic
# expect = ["PD20.evaluation-too-often"]
# stratum = "twins"
# domain = "naming methods in church bell change ringing"
# ///
"""Which method is being rung?

A change-ringing band rings rows of eight bells; an ear in the churchyard hears some bells wrong.
A small encoder, trained by the Trainer, names the method from twelve rows of a touch.
"""

import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

BELLS = 8
ROWS = 12
# place notation: the bells that stay where they are in each change
METHODS = {
    "plain bob": ["x", "18"] * 7 + ["x", "12"],
    "little bob": ["x", "18", "x", "14"] * 3 + ["x", "18", "x", "12"],
    "kent": ["34", "18", "34", "18", "12", "38", "14", "58", "16", "58", "14", "38", "12", "18", "34", "18"],
    "double bob": ["x", "18", "x", "18", "x", "58", "x", "18", "x", "78", "x", "18", "x", "18", "x", "12"],
    "grandsire": ["38", "18", "x", "18", "x", "18", "x", "18", "x", "18", "x", "18", "x", "18", "x", "18"],
    "gainsborough": ["x", "18", "x", "18", "x", "14", "x", "18", "x", "18", "x", "14", "x", "12", "x", "12"],
}


def change(row, places):
    """The next row: all bells swap in pairs but those in `places`."""
    stay = set() if places == "x" else {int(p) - 1 for p in places}
    row, i = list(row), 0
    while i < BELLS - 1:
        if i in stay or i + 1 in stay:
            i += 1
        else:
            row[i], row[i + 1] = row[i + 1], row[i]
            i += 2
    return row


def touch(method, rng, misheard):
    notation = METHODS[method]
    row, at = list(rng.permutation(BELLS)), rng.integers(len(notation))
    heard = []
    for k in range(ROWS):
        heard.extend(row)
        row = change(row, notation[(at + k) % len(notation)])
    heard = np.array(heard)
    wrong = rng.random(len(heard)) < misheard
    heard[wrong] = rng.integers(0, BELLS, wrong.sum())
    return heard


class Touches(Dataset):
    def __init__(self, count, seed, misheard=0.15):
        rng = np.random.default_rng(seed)
        names = list(METHODS)
        picks = rng.integers(0, len(names), count)
        rows = np.stack([touch(names[p], rng, misheard) for p in picks])
        self.bells = torch.from_numpy(rows)
        self.labels = torch.from_numpy(picks)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {"bells": self.bells[i], "labels": self.labels[i]}


class MethodNamer(nn.Module):
    def __init__(self, width=96, depth=3, heads=4):
        super().__init__()
        self.places = nn.Linear(BELLS, width)
        self.at = nn.Parameter(0.02 * torch.randn(ROWS - 1, width))
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.name = nn.Linear(width, len(METHODS))

    def forward(self, bells, labels=None):
        rows = bells.unflatten(1, (ROWS, BELLS))
        stayed = (rows[:, 1:] == rows[:, :-1]).float()
        logits = self.name(self.encoder(self.places(stayed) + self.at).mean(1))
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits}


def named_right(prediction):
    guess = prediction.predictions.argmax(-1)
    return {"right": float((guess == prediction.label_ids).mean())}


class Stopwatch(TrainerCallback):
    def on_train_begin(self, args, state, control, **kwargs):
        self.begin = time.perf_counter()

    def on_train_end(self, args, state, control, **kwargs):
        print(f"training took {time.perf_counter() - self.begin:.1f} s")


def main():
    torch.manual_seed(0)
    strategy, every = "steps", 10  # sick here
    strategy, every = "epoch", None  # well
    args = TrainingArguments(
        output_dir="ringing-out",
        num_train_epochs=12,
        per_device_train_batch_size=64,
        per_device_eval_batch_size=256,
        learning_rate=1e-3,
        warmup_steps=60,
        weight_decay=0.01,
        lr_scheduler_type="cosine",
        eval_strategy=strategy,  # here
        eval_steps=every,  # here
        save_strategy="no",
        logging_strategy="epoch",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
        seed=0,
    )
    trainer = Trainer(
        model=MethodNamer(),
        args=args,
        train_dataset=Touches(6400, seed=1),
        eval_dataset=Touches(2560, seed=2),
        compute_metrics=named_right,
        callbacks=[Stopwatch()],
    )
    trainer.train()


if __name__ == "__main__":
    main()
