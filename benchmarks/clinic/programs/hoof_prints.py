# /// clinic
# expect = ["PD14.frequent-checkpoints"]
# stratum = "twins"
# domain = "horse gait hoofprints"
# ///
"""Gait of a horse from its trackway.

Each hoofprint in a trackway was turned into a code by our print codebook (shape, depth, toe wear: 40960 codes) and is
known to belong to one of four hooves. A small BERT reads the sequence of prints and tells the gait. There are few
labelled trackways, so it is trained for many passes over them.
"""

import time

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

GAITS = ["walk", "trot", "pace", "canter", "gallop", "tolt"]
HOOVES = {"LH": 0, "LF": 1, "RH": 2, "RF": 3}
BEATS = {
    "walk": ["LH", "LF", "RH", "RF"],
    "trot": ["LH", "RF", "RH", "LF"],
    "pace": ["LH", "LF", "RH", "RF"],
    "canter": ["RH", "LH", "RF", "LF"],
    "gallop": ["RH", "LH", "RF", "LF"],
    "tolt": ["LH", "LF", "RH", "RF"],
}
DEPTH = {"walk": 0.15, "trot": 0.45, "pace": 0.4, "canter": 0.6, "gallop": 0.9, "tolt": 0.3}
OVERSTEP = {"walk": 0.25, "trot": 0.5, "pace": 0.75, "canter": 0.6, "gallop": 0.95, "tolt": 0.35}

CODES = 40960
SPECIAL = 2
CLS, MISSING = 0, 1
PRINTS = 31

TRACKS = 24
HELD_OUT = 64
EPOCHS = 85
SAVE = "epoch"  # sick here
SAVE = "steps"  # well


class Trackways(Dataset):
    """Synthetic trackways: depth and overstep of each print fall into a code with a little noise; prints get lost."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.rows = []
        for _ in range(n):
            gait = GAITS[rng.integers(len(GAITS))]
            order = BEATS[gait]
            start = rng.integers(4)
            weight = rng.normal(0, 0.05)
            codes, hooves = [CLS], [0]
            for k in range(PRINTS):
                hoof = order[(start + k) % 4]
                depth = np.clip(DEPTH[gait] + weight + rng.normal(0, 0.07) + 0.04 * hoof.endswith("F"), 0, 0.999)
                over = np.clip(OVERSTEP[gait] + rng.normal(0, 0.06), 0, 0.999)
                wear = rng.integers(0, 6)
                code = SPECIAL + int(depth * 106) * 64 * 6 + int(over * 64) * 6 + wear
                lost = rng.random() < 0.06
                codes.append(MISSING if lost else min(code, CODES - 1))
                hooves.append(HOOVES[hoof])
            self.rows.append(
                {
                    "input_ids": torch.tensor(codes),
                    "token_type_ids": torch.tensor(hooves),
                    "labels": GAITS.index(gait),
                }
            )

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class Stopwatch(TrainerCallback):
    def __init__(self):
        self.first = None
        self.last = None
        self.steps = 0

    def on_step_begin(self, args, state, control, **kwargs):
        if self.first is None:
            self.first = time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        self.steps += 1

    def on_train_end(self, args, state, control, **kwargs):
        self.last = time.perf_counter()

    def rate(self, batch):
        return self.steps * batch / (self.last - self.first)


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def build_model():
    config = BertConfig(
        vocab_size=CODES,
        hidden_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=1024,
        max_position_embeddings=PRINTS + 1,
        type_vocab_size=len(HOOVES),
        num_labels=len(GAITS),
        id2label=dict(enumerate(GAITS)),
        label2id={g: i for i, g in enumerate(GAITS)},
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        pad_token_id=None,
    )
    return BertForSequenceClassification(config)


def main():
    set_seed(17)
    train, held = Trackways(TRACKS, seed=1), Trackways(HELD_OUT, seed=2)
    model = build_model()
    print(f"{model.num_parameters() / 1e6:.1f}M parameters, {len(train)} trackways")

    args = TrainingArguments(
        output_dir="gaits",
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=32,
        learning_rate=2e-4,
        weight_decay=0.01,
        warmup_steps=20,
        lr_scheduler_type="cosine",
        logging_steps=40,
        save_strategy=SAVE,  # here
        save_steps=150,
        save_total_limit=2,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        seed=17,
    )
    watch = Stopwatch()
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=train,
        eval_dataset=held,
        compute_metrics=accuracy,
        callbacks=[watch],
    )
    trainer.train()
    result = trainer.evaluate()
    print(f"held out: loss {result['eval_loss']:.3f}, accuracy {result['eval_accuracy']:.3f}")
    print(f"{watch.rate(args.per_device_train_batch_size):.1f} trackways/s")


if __name__ == "__main__":
    main()
