# /// clinic
# expect = ["PD04.explicit-collect"]
# stratum = "twins"
# domain = "gloss sequences of sign languages"
# ///
"""Sentence types of signed utterances from gloss sequences.

A sequence carries manual signs and non-manual markers (brows, head, mouth). The classifier has to tell
statement, polar question, content question, negation and conditional apart.
"""

import gc
import os
import tempfile
import resource
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

EPOCHS = int(os.environ.get("EPOCHS", "13"))

PAD, CLS, SEP = 0, 1, 2
BROW_UP, BROW_DOWN, HEAD_SHAKE, HEAD_NOD, LEAN_FWD, MOUTH_OPEN, HOLD = range(3, 10)
WH_SIGNS = list(range(10, 16))  # WHO WHAT WHERE WHEN WHY HOW
IF_SIGNS = list(range(16, 18))
NOT_SIGNS = list(range(18, 21))
FIRST_NOUN, VOCAB = 21, 180
LENGTH = 40
TYPES = ["statement", "polar", "content", "negation", "conditional"]


def utterance(rng, kind):
    n = int(rng.integers(14, LENGTH - 8))
    body = rng.integers(FIRST_NOUN, VOCAB, n).tolist()

    def put(token, low=0.0, high=1.0):
        body.insert(int(rng.uniform(low, high) * len(body)), int(token))

    for token in rng.choice([HEAD_NOD, MOUTH_OPEN, HOLD], int(rng.integers(0, 3))):
        put(token)
    if kind == 0 and rng.random() < 0.4:
        put(BROW_UP, 0.0, 0.3)  # topic marking, not a question
    elif kind == 1:
        put(BROW_UP, 0.7, 1.0)
        if rng.random() < 0.5:
            put(LEAN_FWD, 0.8, 1.0)
    elif kind == 2:
        put(rng.choice(WH_SIGNS), 0.6, 1.0)
        put(BROW_DOWN, 0.5, 1.0)
    elif kind == 3:
        put(HEAD_SHAKE, 0.3, 1.0)
        if rng.random() < 0.6:
            put(rng.choice(NOT_SIGNS), 0.4, 1.0)
    elif kind == 4:
        put(BROW_UP, 0.0, 0.3)
        put(rng.choice(IF_SIGNS), 0.0, 0.3)
        put(HOLD, 0.4, 0.6)
    return [CLS] + body[: LENGTH - 2] + [SEP]


class GlossCorpus(Dataset):
    def __init__(self, size, seed):
        rng = np.random.default_rng(seed)
        self.ids = torch.full((size, LENGTH), PAD)
        self.labels = torch.from_numpy(rng.integers(0, len(TYPES), size))
        for row, kind in enumerate(self.labels.tolist()):
            tokens = utterance(rng, kind)
            self.ids[row, : len(tokens)] = torch.tensor(tokens)
        self.mask = (self.ids != PAD).long()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "attention_mask": self.mask[i], "labels": self.labels[i]}


class RunJournal(TrainerCallback):
    """Keeps what goes into the lab journal: peak memory per epoch and the evaluation curve."""

    def __init__(self, every=4):
        self.every = every
        self.peak_mib = []
        self.curve = []

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % self.every == 0:
            gc.collect()  # sick here
            self.peak_mib.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        self.curve.append(metrics["eval_accuracy"])
        print(f"epoch {state.epoch:5.1f}  accuracy {self.curve[-1]:.3f}  peak {self.peak_mib[-1]:.0f} MiB", flush=True)


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def build_model():
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=256,
        max_position_embeddings=LENGTH,
        num_labels=len(TYPES),
        pad_token_id=PAD,
    )
    return BertForSequenceClassification(config)


def main():
    set_seed(11)
    journal = RunJournal()
    trainer = Trainer(
        model=build_model(),
        args=TrainingArguments(
            output_dir=tempfile.mkdtemp(),
            use_cpu=True,
            num_train_epochs=EPOCHS,
            per_device_train_batch_size=64,
            per_device_eval_batch_size=128,
            learning_rate=8e-4,
            warmup_steps=60,
            weight_decay=0.01,
            eval_strategy="epoch",
            logging_steps=40,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=False,
            seed=11,
        ),
        train_dataset=GlossCorpus(1920, seed=1),
        eval_dataset=GlossCorpus(384, seed=2),
        compute_metrics=accuracy,
        callbacks=[journal],
    )
    started = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - started
    print(f"best accuracy {max(journal.curve):.3f}")
    print(f"total training seconds: {seconds:.2f}")


if __name__ == "__main__":
    main()
