# /// clinic
# expect = ["PD20.outputs-kept"]
# stratum = "twins"
# domain = "splice sites"
# ///
"""Tags each base of a DNA window as donor site, acceptor site or neither, with a small BERT."""

import tempfile
import time

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForTokenClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)
from transformers.utils import logging

logging.set_verbosity_error()
logging.disable_progress_bar()

BASES = "ACGT"
WINDOW = 96
LABELS = ["none", "donor", "acceptor"]
DONOR, ACCEPTOR = [2, 3, 0, 2], [3, 1, 0, 2]  # GTAG, TCAG


class SpliceWindows(Dataset):
    """Random DNA in which motifs are planted; a donor counts only where pyrimidines follow."""

    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.bases = rng.integers(0, 4, (count, WINDOW))
        self.tags = np.zeros((count, WINDOW), dtype=np.int64)
        for i in range(count):
            for motif, _tag in ((DONOR, 1), (ACCEPTOR, 2)):
                for start in rng.choice(WINDOW // 8, rng.integers(1, 4), replace=False) * 8:
                    self.bases[i, start : start + 4] = motif
                    tail = self.bases[i, start + 4 : start + 8]
                    tail[:] = rng.integers(0, 4, 4)
                    if rng.random() < 0.5:
                        tail[:] = rng.choice([1, 3], 4)
            for start in range(0, WINDOW - 7, 8):
                window = self.bases[i, start : start + 8]
                if not np.isin(window[4:], [1, 3]).all():
                    continue
                if window[:4].tolist() == DONOR:
                    self.tags[i, start] = 1
                elif window[:4].tolist() == ACCEPTOR:
                    self.tags[i, start] = 2

    def __len__(self):
        return len(self.bases)

    def __getitem__(self, i):
        return {"input_ids": self.bases[i] + 1, "labels": self.tags[i]}


def build_model(hidden=128, layers=4):
    config = BertConfig(
        vocab_size=len(BASES) + 1,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=2 * hidden,
        max_position_embeddings=WINDOW,
        num_labels=len(LABELS),
        output_hidden_states=True,  # sick here
        hidden_dropout_prob=0.05,
        attention_probs_dropout_prob=0.0,
    )
    return BertForTokenClassification(config)


def site_metrics(prediction):
    scores, truth = prediction.predictions, prediction.label_ids
    scores = scores[0] if isinstance(scores, tuple) else scores
    guess = scores.argmax(-1)
    out = {"accuracy": float((guess == truth).mean())}
    for tag in (1, 2):
        hit = np.sum((guess == tag) & (truth == tag))
        wrong = np.sum((guess == tag) != (truth == tag))
        out[f"f1_{LABELS[tag]}"] = float(2 * hit / max(2 * hit + wrong, 1))
    return out


def collate(rows):
    return {key: torch.as_tensor(np.stack([row[key] for row in rows])) for key in rows[0]}


class Pace(TrainerCallback):
    def __init__(self, skip=5):
        self.skip, self.began = skip, None

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.skip:
            self.began = time.perf_counter()

    def on_train_end(self, args, state, control, **kwargs):
        self.rate = (state.global_step - self.skip) / (time.perf_counter() - self.began)


def main():
    set_seed(11)
    train, valid = SpliceWindows(6000, 0), SpliceWindows(1600, 1)
    pace = Pace()
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="splice"),
        per_device_train_batch_size=16,
        per_device_eval_batch_size=16,
        max_steps=400,
        learning_rate=1e-3,
        warmup_steps=40,
        weight_decay=0.01,
        eval_strategy="steps",
        eval_steps=80,
        save_strategy="no",
        logging_steps=80,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
    )
    trainer = Trainer(
        model=build_model(),
        args=args,
        train_dataset=train,
        eval_dataset=valid,
        data_collator=collate,
        compute_metrics=site_metrics,
        callbacks=[pace],
    )
    trainer.train()
    last = [row for row in trainer.state.log_history if "eval_f1_donor" in row][-1]
    print({key: round(last[f"eval_{key}"], 4) for key in ("loss", "accuracy", "f1_donor", "f1_acceptor")})
    print(f"{pace.rate:.2f} steps/s")


if __name__ == "__main__":
    main()
