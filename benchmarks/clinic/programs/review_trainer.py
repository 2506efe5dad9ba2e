# /// clinic
# expect = ["PD05.mergeable-accumulation"]
# allow = ["PD05.batch-too-small"]
# stratum = "twins"
# domain = "text"
# sizes = {WORDS = [1500, 2500]}
# severities = {PIECES = [4, 8, 16]}
# ///
"""Teaches a small BERT the mood of short reviews with the Trainer of transformers."""

import os
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments
from transformers.utils import logging

WORDS = 2000
PIECES = 8
ROWS = 16
STEPS = 60


class Reviews(Dataset):
    def __init__(self, count, length=12):
        generator = np.random.default_rng(0)
        self.words = torch.from_numpy(generator.integers(5, WORDS, (count, length)))
        self.moods = torch.from_numpy(generator.integers(0, 2, count))

    def __len__(self):
        return len(self.moods)

    def __getitem__(self, index):
        return {"input_ids": self.words[index], "labels": self.moods[index]}


class Clock(TrainerCallback):
    def on_step_end(self, arguments, state, control, **rest):
        if state.global_step == 5:
            self.began = time.perf_counter()
        self.steps = state.global_step - 5

    def on_train_end(self, arguments, state, control, **rest):
        self.rate = ROWS * self.steps / (time.perf_counter() - self.began)


def main():
    logging.set_verbosity_error()
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=192,
        num_hidden_layers=3,
        num_attention_heads=6,
        intermediate_size=768,
        max_position_embeddings=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    arguments = TrainingArguments(  # here
        output_dir="out",
        per_device_train_batch_size=ROWS // PIECES,  # sick here
        gradient_accumulation_steps=PIECES,  # sick here
        per_device_train_batch_size=ROWS,  # well
        gradient_accumulation_steps=1,  # well
        max_steps=STEPS,
        learning_rate=3e-4,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    clock = Clock()
    trainer = Trainer(BertForSequenceClassification(config), arguments, train_dataset=Reviews(4000), callbacks=[clock])
    done = trainer.train()
    print(f"loss {done.training_loss:.4f}")
    print(f"{clock.rate:.2f} reviews/s")


if __name__ == "__main__":
    main()
