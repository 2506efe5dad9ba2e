# /// clinic
# expect = ["PD05.mergeable-accumulation"]
# allow = ["PD05.batch-too-small"]
# stratum = "twins"
# domain = "text"
# sizes = {WORDS = [700, 900]}
# severities = {PIECES = [4, 8, 16]}
# ///
"""A small GPT that writes headlines of a dozen words, with the Trainer of transformers."""

import time

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.utils import logging

WORDS = 800
PIECES = 8
ROWS = 16
STEPS = 60


class Headlines(Dataset):
    def __init__(self, count, length=12):
        generator = np.random.default_rng(0)
        self.words = torch.from_numpy(generator.integers(5, WORDS, (count, length)))

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        return {"input_ids": self.words[index], "labels": self.words[index]}


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
    config = GPT2Config(
        vocab_size=WORDS, n_positions=16, n_embd=192, n_layer=3, n_head=6, bos_token_id=0, eos_token_id=0
    )
    size, pieces = ROWS // PIECES, PIECES  # sick here
    size, pieces = ROWS, 1  # well
    arguments = TrainingArguments(  # here
        output_dir="out",
        per_device_train_batch_size=size,  # here
        gradient_accumulation_steps=pieces,  # here
        max_steps=STEPS,
        learning_rate=3e-4,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    clock = Clock()
    trainer = Trainer(GPT2LMHeadModel(config), arguments, train_dataset=Headlines(4000), callbacks=[clock])
    done = trainer.train()
    print(f"loss {done.training_loss:.4f}")
    print(f"{clock.rate:.2f} headlines/s")


if __name__ == "__main__":
    main()
