# /// clinic
# expect = ["PD14.frequent-checkpoints"]
# stratum = "twins"
# domain = "medieval charter seals"
# ///
"""Who sealed this charter? Classifies sigillographic descriptions of medieval seals by kind of sigillant.

Descriptions follow the usual order of a corpus entry: shape, wax, attachment, field (figures and attributes),
legend in normalised Latin, condition. A small BERT is trained on the multilingual word pieces; the table of
word vectors is left as it is, there are far too few seals to learn it.
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

KINDS = ["royal", "episcopal", "abbatial", "chapter", "noble", "equestrian lady", "town", "guild", "parish priest"]
VOCAB = 120_000
MAX_LEN = 32
MAX_STEPS = 480
EVAL_EVERY = 240
SAVE_EVERY = 5  # sick here
SAVE_EVERY = EVAL_EVERY  # well
PAD, CLS, SEP = 0, 1, 2
SECTIONS = {
    "shape": (10, 40),
    "wax": (40, 80),
    "attachment": (80, 130),
    "field": (130, 4_000),
    "legend": (4_000, 110_000),
    "condition": (110_000, 120_000),
}


class SealCorpus(Dataset):
    """Draws entries from a topic model: each kind has its own attributes and its own legend formulae."""

    def __init__(self, size, seed):
        world = np.random.default_rng(1297)
        self.topics = {}
        for name, (low, high) in SECTIONS.items():
            span = high - low
            base = 1 / np.arange(1, span + 1) ** 0.9
            cdfs = []
            for _ in KINDS:
                own = base * world.gamma(0.6, 1.0, span)
                cdfs.append(np.cumsum(own / own.sum()))
            self.topics[name] = (low, np.stack(cdfs))
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, len(KINDS), size)
        self.entries = [self._entry(kind, rng) for kind in self.labels]

    def _draw(self, rng, section, kind, n):
        low, cdfs = self.topics[section]
        at = np.searchsorted(cdfs[kind], rng.random(n))
        return (low + np.minimum(at, cdfs.shape[1] - 1)).tolist()

    def _entry(self, kind, rng):
        words = []
        for section, n in (
            ("shape", 1),
            ("wax", 2),
            ("attachment", 2),
            ("field", int(rng.integers(4, 9))),
            ("legend", int(rng.integers(5, 12))),
            ("condition", int(rng.integers(1, 4))),
        ):
            source = kind if rng.random() < 0.8 else int(rng.integers(len(KINDS)))
            words += self._draw(rng, section, source, n)
        return [CLS, *words[: MAX_LEN - 2], SEP]

    def __len__(self):
        return len(self.entries)

    def __getitem__(self, i):
        return {"tokens": self.entries[i], "kind": int(self.labels[i])}


def collate(rows):
    longest = max(len(r["tokens"]) for r in rows)
    ids = torch.full((len(rows), longest), PAD)
    for i, row in enumerate(rows):
        ids[i, : len(row["tokens"])] = torch.tensor(row["tokens"])
    return {
        "input_ids": ids,
        "attention_mask": (ids != PAD).long(),
        "labels": torch.tensor([r["kind"] for r in rows]),
    }


class Stopwatch(TrainerCallback):
    began = ended = None

    def on_step_begin(self, args, state, control, **kwargs):
        if self.began is None:
            self.began = time.perf_counter()

    def on_train_end(self, args, state, control, **kwargs):
        self.ended = time.perf_counter()


def scores(prediction):
    guess = prediction.predictions.argmax(-1)
    truth = prediction.label_ids
    recall = [(guess[truth == k] == k).mean() for k in range(len(KINDS)) if (truth == k).any()]
    return {"accuracy": float((guess == truth).mean()), "balanced": float(np.mean(recall))}


def build():
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=768,
        max_position_embeddings=64,
        type_vocab_size=1,
        pad_token_id=PAD,
        num_labels=len(KINDS),
        id2label=dict(enumerate(KINDS)),
        label2id={name: i for i, name in enumerate(KINDS)},
    )
    model = BertForSequenceClassification(config)
    model.bert.embeddings.word_embeddings.requires_grad_(False)
    return model


def main():
    set_seed(1297)
    train, test = SealCorpus(2_880, seed=1), SealCorpus(320, seed=2)
    model = build()
    args = TrainingArguments(
        output_dir="runs/seals",
        per_device_train_batch_size=12,
        per_device_eval_batch_size=64,
        max_steps=MAX_STEPS,
        learning_rate=3e-4,
        warmup_steps=20,
        lr_scheduler_type="cosine",
        weight_decay=0.01,
        logging_steps=20,
        eval_strategy="steps",
        eval_steps=EVAL_EVERY,
        save_strategy="steps",
        save_steps=SAVE_EVERY,  # here
        save_total_limit=2,
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_num_workers=0,
        use_cpu=True,
        seed=1297,
    )
    watch = Stopwatch()
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=train,
        eval_dataset=test,
        data_collator=collate,
        compute_metrics=scores,
        callbacks=[watch],
    )
    trainer.train()
    final = trainer.evaluate()
    print({k: round(v, 3) for k, v in final.items() if isinstance(v, float)})
    rate = args.max_steps * args.per_device_train_batch_size / (watch.ended - watch.began)
    print(f"{rate:.1f} samples/s")


if __name__ == "__main__":
    main()
