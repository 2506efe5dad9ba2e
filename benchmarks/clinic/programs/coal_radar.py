# /// clinic
# expect = ["PD10.python-between-steps", "PD20"]
# stratum = "twins"
# domain = "coal seam radar"
# ///
"""Masked modelling of coal seam radar.

Ground radar traces are taken along a gallery; each trace is reduced to a code of a fixed codebook (seam depth x echo
strength). A small BERT learns to fill in masked traces along a profile; later the encoder finds faults and wash-outs.
"""

import time

import numpy as np
import torch
from scipy.stats import rankdata  # sick
from torch.utils.data import Dataset
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainerCallback, TrainingArguments, set_seed

DEPTHS, STRENGTHS = 64, 16
SPECIAL = 2
PAD, MASK = 0, 1
CODES = DEPTHS * STRENGTHS + SPECIAL
TRACES = 96


def walk_gallery(rng, profiles):
    """Depth drifts with the dip of the seam and jumps at faults; the echo fades with depth and water."""
    dip = rng.normal(0, 0.25, size=(profiles, 1))
    drift = np.cumsum(dip + rng.normal(0, 0.35, size=(profiles, TRACES)), axis=1)
    faults = rng.random((profiles, TRACES)) < 0.02
    throw = np.cumsum(faults * rng.normal(0, 8, size=(profiles, TRACES)), axis=1)
    depth = 32 + rng.normal(0, 8, size=(profiles, 1)) + drift + throw
    depth = np.clip(np.rint(depth), 0, DEPTHS - 1)
    water = np.repeat(rng.normal(0, 1.5, size=(profiles, TRACES // 12)), 12, axis=1)
    strength = 12 - depth / 8 + water + rng.normal(0, 0.5, size=depth.shape)
    strength = np.clip(np.rint(strength), 0, STRENGTHS - 1)
    return torch.from_numpy((depth * STRENGTHS + strength).astype(np.int64) + SPECIAL)


class Profiles(Dataset):
    def __init__(self, codes):
        self.codes = codes

    def __len__(self):
        return len(self.codes)

    def __getitem__(self, i):
        return {"codes": self.codes[i]}


class SpanMasker:
    """Hides some spans of traces, as a wet stretch of the gallery would."""

    def __init__(self, spans=5, longest=6):
        self.spans, self.longest = spans, longest

    def __call__(self, items):
        codes = torch.stack([item["codes"] for item in items])
        hidden = torch.zeros_like(codes, dtype=torch.bool)
        place = torch.arange(TRACES)[None]
        for _ in range(self.spans):
            first = torch.randint(TRACES, (len(items), 1))
            length = torch.randint(1, self.longest + 1, (len(items), 1))
            hidden |= (place >= first) & (place < first + length)
        return {
            "input_ids": codes.masked_fill(hidden, MASK),
            "attention_mask": torch.ones_like(codes),
            "labels": codes.masked_fill(~hidden, -100),
        }


def fill_in_scores(prediction):
    logits, labels = prediction.predictions, prediction.label_ids
    asked = labels != -100
    ranks = rankdata(-logits, axis=-1, method="min")  # sick here
    rank = np.take_along_axis(ranks[asked], labels[asked][:, None], axis=-1)[:, 0] - 1  # sick
    logits, labels = logits[asked], labels[asked]
    rank = (logits > np.take_along_axis(logits, labels[:, None], axis=-1)).sum(-1)  # well
    guess = logits.argmax(-1)
    depth_error = np.abs((guess - SPECIAL) // STRENGTHS - (labels - SPECIAL) // STRENGTHS)
    return {
        "exact": float((rank == 0).mean()),
        "top10": float((rank < 10).mean()),
        "mrr": float((1 / (rank + 1)).mean()),
        "depth_mae": float(depth_error.mean()),
    }


class Pace(TrainerCallback):
    def __init__(self):
        self.start, self.rate = None, None

    def on_step_begin(self, args, state, control, **kwargs):
        if self.start is None:
            self.start = time.perf_counter()

    def on_train_end(self, args, state, control, **kwargs):
        profiles = state.global_step * args.train_batch_size
        self.rate = profiles / (time.perf_counter() - self.start)


def build_model():
    config = BertConfig(
        vocab_size=CODES,
        hidden_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=192,
        max_position_embeddings=TRACES,
        type_vocab_size=1,
        pad_token_id=PAD,
    )
    return BertForMaskedLM(config)


def main():
    set_seed(77)
    rng = np.random.default_rng(77)
    train_set, eval_set = Profiles(walk_gallery(rng, 2560)), Profiles(walk_gallery(rng, 80))
    args = TrainingArguments(
        output_dir="radar_bert",
        max_steps=180,
        per_device_train_batch_size=12,
        per_device_eval_batch_size=16,
        learning_rate=1e-3,
        warmup_steps=20,
        weight_decay=0.01,
        logging_steps=25,
        eval_strategy="steps",
        eval_steps=25,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        seed=77,
    )
    pace = Pace()
    trainer = Trainer(
        model=build_model(),
        args=args,
        train_dataset=train_set,
        eval_dataset=eval_set,
        data_collator=SpanMasker(),
        compute_metrics=fill_in_scores,
        callbacks=[pace],
    )
    trainer.train()
    print(f"{pace.rate:.1f} profiles/s")


if __name__ == "__main__":
    main()
