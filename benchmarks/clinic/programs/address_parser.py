# /// clinic
# expect = ["PD20.evaluation-too-often"]
# stratum = "twins"
# domain = "postal address parsing with the transformers Trainer"
# ///
"""Parse postal addresses into their parts (token classification) with a small DistilBERT and the transformers Trainer.

Addresses are written from templates of several countries; the labels are number, street, unit, postcode, city and region.
"""

import argparse
import random
import tempfile
import zlib

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    DistilBertConfig,
    DistilBertForTokenClassification,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)


LABELS = ["other", "number", "street", "unit", "postcode", "city", "region"]
LABEL_ID = {label: i for i, label in enumerate(LABELS)}
VOCABULARY = 4096
PAD = 0

STEMS = [
    "Oak",
    "Mill",
    "Church",
    "Station",
    "Linden",
    "King",
    "Harbour",
    "Garden",
    "Berg",
    "Schiller",
    "Victor",
    "Rose",
    "Castle",
    "Bridge",
    "Market",
    "School",
    "Forest",
    "Meadow",
    "North",
    "Chestnut",
    "Abbey",
    "Windsor",
    "Canal",
]
KINDS = ["Street", "Road", "Lane", "Avenue", "Way", "Close", "Strasse", "Allee", "Rue", "Via", "Plein", "Square"]
CITIES = [
    "Ash ford",
    "Brook field",
    "Lyne ham",
    "Mar burg",
    "Saint Aubin",
    "Porto Vecchio",
    "Groot dorp",
    "Kings ton",
    "Wester land",
    "New Haven",
    "Alt stadt",
    "Mont clair",
    "Santa Fe",
    "Oude water",
]
REGIONS = ["Kent", "Hessen", "Ohio", "Bretagne", "Toscana", "Utrecht", "Maine", "Devon", "Tirol", "Galicia"]
UNITS = ["Flat", "Apt", "Unit", "Suite", "Floor", "c/o"]


def postcode(rng):
    if rng.random() < 0.5:
        return [str(rng.randint(10000, 99999))]
    letters = "ABCDEFGHLMNPRSTW"
    return [
        rng.choice(letters) + rng.choice(letters) + str(rng.randint(1, 20)),
        str(rng.randint(1, 9)) + rng.choice(letters),
    ]


def write_address(rng):
    """One address as a list of (word, label)."""
    number = [(str(rng.randint(1, 400)) + rng.choice(["", "", "a", "b"]), "number")]
    street = [(rng.choice(STEMS), "street"), (rng.choice(KINDS), "street")]
    if rng.random() < 0.3:
        street.insert(0, (rng.choice(["Old", "Upper", "Lower", "Great"]), "street"))
    front = number + street if rng.random() < 0.5 else street + number
    if rng.random() < 0.4:
        unit = [(rng.choice(UNITS), "unit"), (str(rng.randint(1, 60)), "unit")]
        front = unit + [(",", "other")] + front if rng.random() < 0.5 else front + [(",", "other")] + unit
    city = [(word, "city") for word in rng.choice(CITIES).split()]
    code = [(part, "postcode") for part in postcode(rng)]
    back = code + city if rng.random() < 0.5 else city + code
    if rng.random() < 0.5:
        back = back + [(",", "other"), (rng.choice(REGIONS), "region")]
    words = front + [(",", "other")] + back
    return [(word.upper() if rng.random() < 0.05 else word, label) for word, label in words]


def word_pieces(word):
    """Ids of a word: its halves, hashed into the vocabulary."""
    middle = (len(word) + 1) // 2
    return [2 + zlib.crc32(piece.encode()) % (VOCABULARY - 2) for piece in (word[:middle], word[middle:]) if piece]


class AddressDataset(Dataset):
    def __init__(self, count, seed):
        rng = random.Random(seed)
        self.rows = []
        for _ in range(count):
            ids, labels = [1], [-100]
            for word, label in write_address(rng):
                pieces = word_pieces(word)
                ids += pieces
                labels += [LABEL_ID[label]] + [-100] * (len(pieces) - 1)
            self.rows.append({"input_ids": ids, "labels": labels})

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def collate(rows):
    """Pad to the longest address of the batch."""
    longest = max(len(row["input_ids"]) for row in rows)

    def pad(values, filler):
        return values + [filler] * (longest - len(values))

    return {
        "input_ids": torch.tensor([pad(row["input_ids"], PAD) for row in rows]),
        "attention_mask": torch.tensor([pad([1] * len(row["input_ids"]), 0) for row in rows]),
        "labels": torch.tensor([pad(row["labels"], -100) for row in rows]),
    }


def compute_metrics(prediction):
    guesses = prediction.predictions.argmax(-1)
    truth = prediction.label_ids
    known = truth != -100
    whole = np.logical_or(guesses == truth, ~known).all(1)
    return {"word_accuracy": float((guesses == truth)[known].mean()), "address_accuracy": float(whole.mean())}


class ShortLog(TrainerCallback):
    """A line per log, without the dictionary's noise."""

    def on_log(self, args, state, control, logs=None, **kwargs):
        shown = {
            k: v
            for k, v in (logs or {}).items()
            if k in ("loss", "eval_loss", "eval_word_accuracy", "eval_address_accuracy")
        }
        if shown:
            print(
                f"step {state.global_step:4d}  " + "  ".join(f"{k} {float(v):.3f}" for k, v in shown.items()),
                flush=True,
            )


def training_arguments(options, folder):
    shared = dict(
        output_dir=folder,
        max_steps=options.steps,
        learning_rate=options.rate,
        warmup_steps=40,
        weight_decay=0.01,
        per_device_train_batch_size=options.batch,
        per_device_eval_batch_size=128,
        lr_scheduler_type="cosine",
        logging_steps=10,  # here
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        seed=options.seed,
    )
    return TrainingArguments(eval_strategy="steps", **shared)  # sick here
    return TrainingArguments(eval_strategy="steps", eval_steps=options.steps // 3, **shared)  # well


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=540)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=5e-4)
    parser.add_argument("--addresses", type=int, default=12000)
    parser.add_argument("--held-out", type=int, default=600)
    parser.add_argument("--seed", type=int, default=21)
    options = parser.parse_args()

    set_seed(options.seed)
    train_set = AddressDataset(options.addresses, seed=options.seed)
    eval_set = AddressDataset(options.held_out, seed=options.seed + 1)
    model = DistilBertForTokenClassification(
        DistilBertConfig(
            vocab_size=VOCABULARY,
            max_position_embeddings=64,
            dim=128,
            hidden_dim=384,
            n_layers=4,
            n_heads=4,
            num_labels=len(LABELS),
            pad_token_id=PAD,
        )
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=model,
            args=training_arguments(options, folder),
            train_dataset=train_set,
            eval_dataset=eval_set,
            data_collator=collate,
            compute_metrics=compute_metrics,
            callbacks=[ShortLog()],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        print({name: round(value, 3) for name, value in trainer.evaluate().items() if name.startswith("eval_w")})


if __name__ == "__main__":
    main()
