# /// clinic
# expect = ["PD05.mergeable-accumulation", "PD05.batch-too-small"]
# stratum = "twins"
# domain = "text"
# ///
"""Tag support tickets with a small BERT through the transformers Trainer (random weights, random tickets)."""

import os
import tempfile
import time

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

VOCAB, LENGTH, TAGS = 2000, 32, 6


class Tickets(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(11)
        self.ids = torch.randint(5, VOCAB, (n, LENGTH), generator=g)
        self.tags = self.ids[:, :4].sum(1) % TAGS
        self.mask = torch.ones(LENGTH, dtype=torch.long)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "attention_mask": self.mask, "labels": self.tags[i]}


class Meter(TrainerCallback):
    """Counts tickets after a few steps of warm-up."""

    def __init__(self, per_step, skip=5):
        self.per_step, self.skip = per_step, skip
        self.start = self.end = None
        self.steps = 0

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.skip:
            self.start = time.perf_counter()
        elif state.global_step > self.skip:
            self.steps += 1
            self.end = time.perf_counter()

    def rate(self):
        return self.steps * self.per_step / (self.end - self.start)


def build():
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=384,
        max_position_embeddings=64,
        num_labels=TAGS,
    )
    return BertForSequenceClassification(config)


def run():
    torch.manual_seed(0)
    micro, accumulate = 2, 8  # sick here
    micro, accumulate = 16, 1  # well
    meter = Meter(micro * accumulate)
    with tempfile.TemporaryDirectory() as out:
        args = TrainingArguments(
            output_dir=out,
            per_device_train_batch_size=micro,
            gradient_accumulation_steps=accumulate,  # here
            learning_rate=3e-4,
            max_steps=110,
            logging_steps=50,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            dataloader_num_workers=0,
            dataloader_pin_memory=False,
        )
        trainer = Trainer(model=build(), args=args, train_dataset=Tickets(2400), callbacks=[meter])
        result = trainer.train()
    print(f"loss {result.training_loss:.4f}")
    return meter.rate()


if __name__ == "__main__":
    print(f"{run():.1f} tickets/s")
