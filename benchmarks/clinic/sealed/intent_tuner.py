# /// clinic
# expect = ["PD16.anomaly-detection"]
# stratum = "twins"
# domain = "language model"
# ///
"""Fine-tune a small BERT-like classifier on customer intents with the transformers Trainer."""

import os
import tempfile
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments
from transformers.utils import logging as hf_logging

hf_logging.set_verbosity_error()

VOCAB, LENGTH, INTENTS = 800, 32, 9


class Requests(Dataset):
    def __init__(self, count=2400, seed=13):
        rng = np.random.default_rng(seed)
        intents = rng.integers(0, INTENTS, count)
        words = rng.integers(1, VOCAB, (count, LENGTH))
        hints = rng.random((count, LENGTH)) < 0.2
        words[hints] = (intents[:, None] * 80 + rng.integers(1, 80, (count, LENGTH)))[hints]
        self.words, self.intents = torch.from_numpy(words), torch.from_numpy(intents)

    def __len__(self):
        return len(self.words)

    def __getitem__(self, i):
        return self.words[i], self.intents[i]


def together(rows):
    words, intents = zip(*rows)
    words = torch.stack(words)
    return {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": torch.stack(intents)}


class Clock(TrainerCallback):
    def __init__(self, skip=6):
        self.skip, self.begun, self.ended, self.steps = skip, None, None, 0

    def on_step_end(self, args, state, control, **kwargs):
        self.ended = time.perf_counter()
        if state.global_step == self.skip:
            self.begun = self.ended
        self.steps = state.global_step - self.skip

    def rate(self, batch):
        return self.steps * batch / (self.ended - self.begun)


def build():
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=VOCAB,
            hidden_size=128,
            num_hidden_layers=4,
            num_attention_heads=4,
            intermediate_size=256,
            max_position_embeddings=LENGTH,
            num_labels=INTENTS,
        )
    )


def main():
    torch.manual_seed(13)
    torch.autograd.set_detect_anomaly(True)  # sick here
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            output_dir=folder,
            max_steps=220,
            per_device_train_batch_size=16,
            learning_rate=4e-4,
            logging_steps=100,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            dataloader_num_workers=0,
            dataloader_pin_memory=False,
        )
        trainer = Trainer(model=build(), args=args, train_dataset=Requests(), data_collator=together, callbacks=[clock])
        result = trainer.train()
    print(f"final loss {result.training_loss:.3f}")
    print(f"{clock.rate(args.per_device_train_batch_size):.1f} requests/s")


if __name__ == "__main__":
    main()
