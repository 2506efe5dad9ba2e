# /// clinic
# expect = ["PD03"]
# stratum = "twins"
# domain = "translation (transformers.Trainer)"
# ///
"""Train a tiny T5 to translate digit strings into number words."""

import random
import time

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import (
    PrinterCallback,
    ProgressCallback,
    T5Config,
    T5ForConditionalGeneration,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

PAIRS = 256
BATCH = 16
STEPS = 520
WARMUP = 20
DIGITS = list("0123456789")
WORDS = "zero one two three four five six seven eight nine ten hundred thousand and".split()
VOCAB = ["<pad>", "</s>"] + DIGITS + WORDS
INDEX = {w: i for i, w in enumerate(VOCAB)}


def spell(n):
    out = []
    if n >= 1000:
        out += [WORDS[n // 1000], "thousand"]
    if n % 1000 >= 100:
        out += [WORDS[n % 1000 // 100], "hundred"]
    if n % 100:
        out += ["and"] if out else []
        tens, ones = n % 100 // 10, n % 10
        out += [WORDS[tens], "ten"] if tens else []
        out += [WORDS[ones]] if ones else []
    return out or ["zero"]


class NumberPairs(Dataset):
    def __init__(self, n, seed=0):
        rng = random.Random(seed)
        self.rows = []
        for _ in range(n):
            values = [rng.randrange(10000) for _ in range(3)]
            source = [INDEX[c] for v in values for c in str(v)] + [1]
            target = [INDEX[w] for v in values for w in spell(v)] + [1]
            self.rows.append({"input_ids": source, "labels": target})

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def pad_batch(rows):
    def pad(key, fill):
        width = max(len(r[key]) for r in rows)
        return torch.tensor([r[key] + [fill] * (width - len(r[key])) for r in rows])

    ids = pad("input_ids", 0)
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": pad("labels", -100)}


class Clock(TrainerCallback):
    def on_step_end(self, args, state, control, **kw):
        if state.global_step == WARMUP:
            self.start = time.perf_counter()
        self.end = time.perf_counter()


class PairTrainer(Trainer):
    def get_train_dataloader(self):
        options = dict(batch_size=self._train_batch_size, shuffle=True, drop_last=True, collate_fn=pad_batch)
        loader = DataLoader(self.train_dataset, num_workers=2, **options)  # sick here
        loader = DataLoader(self.train_dataset, num_workers=0, **options)  # well
        return self.accelerator.prepare(loader)


def main():
    set_seed(3)
    config = T5Config(
        vocab_size=len(VOCAB),
        d_model=64,
        d_kv=16,
        d_ff=128,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.1,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
    )
    args = TrainingArguments(
        output_dir="/tmp/translate_numbers",
        max_steps=STEPS,
        per_device_train_batch_size=BATCH,
        learning_rate=1e-3,
        lr_scheduler_type="cosine",
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    clock = Clock()
    trainer = PairTrainer(
        model=T5ForConditionalGeneration(config),
        args=args,
        train_dataset=NumberPairs(PAIRS),
        data_collator=pad_batch,
        callbacks=[clock],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.remove_callback(ProgressCallback)
    trainer.train()
    print(f"{(STEPS - WARMUP) / (clock.end - clock.start):.1f} steps/s")


if __name__ == "__main__":
    main()
