# /// clinic
# expect = ["PD20"]
# stratum = "twins"
# domain = "text classification"
# ///
"""Trains a small BERT to tell the sentiment of synthetic reviews."""

import os
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"

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
from transformers.trainer_callback import PrinterCallback
from transformers.utils import logging

VOCAB = 2000
LENGTH = 48
BATCH = 16
HELD_OUT = 512
STEPS = 400
WARMUP = 20

logging.set_verbosity_error()


class Reviews(Dataset):
    def __init__(self, count, seed):
        gen = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(5, VOCAB, (count, LENGTH), generator=gen)
        tone = (self.tokens % 7 == 0).sum(1) - (self.tokens % 7 == 3).sum(1)
        self.labels = (tone > 0).long()

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return {
            "input_ids": self.tokens[i],
            "attention_mask": torch.ones(LENGTH, dtype=torch.long),
            "labels": self.labels[i],
        }


class Clock(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == WARMUP:
            self.start = time.perf_counter()

    def on_train_end(self, args, state, control, **kwargs):
        self.rate = (STEPS - WARMUP) / (time.perf_counter() - self.start)


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def main():
    set_seed(1)
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=VOCAB,
            hidden_size=96,
            num_hidden_layers=3,
            num_attention_heads=4,
            intermediate_size=256,
            max_position_embeddings=64,
            num_labels=2,
        )
    )
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            output_dir=folder,
            max_steps=STEPS,
            per_device_train_batch_size=BATCH,
            per_device_eval_batch_size=64,
            learning_rate=3e-4,
            eval_strategy="steps",
            **dict(eval_steps=10),  # sick here
            **dict(eval_steps=200),  # well
            save_strategy="no",
            logging_steps=100,
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            dataloader_pin_memory=False,
        )
        trainer = Trainer(
            model=model,
            args=args,
            train_dataset=Reviews(4000, 2),
            eval_dataset=Reviews(HELD_OUT, 3),
            compute_metrics=accuracy,
            callbacks=[clock],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    print(f"{clock.rate:.1f} steps/s")


if __name__ == "__main__":
    main()
