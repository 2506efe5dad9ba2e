# /// clinic
# expect = ["PD10", "PD20"]
# stratum = "twins"
# domain = "translation"
# ///
"""Train a tiny encoder-decoder that translates made-up sentences."""

import math
import random
import tempfile
import time
from collections import Counter

import torch
from torch.utils.data import Dataset
from transformers import BartConfig, BartForConditionalGeneration, Trainer, TrainerCallback, TrainingArguments
from transformers.utils import logging

WORDS = 400
LENGTH = 28
WIDTH = 64
PAIRS = 4000
BATCH = 32
STEPS = 400

logging.set_verbosity_error()


class Pairs(Dataset):
    def __init__(self, seed=4):
        rng = random.Random(seed)
        self.rows = []
        for _ in range(PAIRS):
            source = [rng.randrange(4, WORDS) for _ in range(LENGTH - 1)] + [2]
            target = [4 + (w * 3) % (WORDS - 4) for w in reversed(source[:-1])] + [2]
            self.rows.append({"input_ids": torch.tensor(source), "labels": torch.tensor(target)})

    def __len__(self):
        return PAIRS

    def __getitem__(self, i):
        return self.rows[i]


def ngrams(words, n):
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def bleu(guesses, truths, order=4):
    match, total = [0] * order, [0] * order
    for guess, truth in zip(guesses, truths):
        for n in range(1, order + 1):
            have, want = ngrams(guess, n), ngrams(truth, n)
            match[n - 1] += sum((have & want).values())
            total[n - 1] += max(1, sum(have.values()))
    return math.exp(sum(math.log((m + 1) / (t + 1)) for m, t in zip(match, total)) / order)


class TranslationTrainer(Trainer):
    quality = 0.0

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        words = outputs.logits.detach().argmax(-1)
        self.quality = 0.9 * self.quality + 0.1 * bleu(words.tolist(), inputs["labels"].tolist())  # sick here
        if self.state.global_step % 50 == 0:  # well
            self.quality = 0.5 * self.quality + 0.5 * bleu(words.tolist(), inputs["labels"].tolist())  # well
        return (outputs.loss, outputs) if return_outputs else outputs.loss


class Clock(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 20:
            self.start = time.perf_counter()
        elif state.global_step == STEPS:
            self.rate = (STEPS - 20) / (time.perf_counter() - self.start)


def main():
    torch.manual_seed(0)
    config = BartConfig(
        vocab_size=WORDS,
        d_model=WIDTH,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_position_embeddings=64,
    )
    model = BartForConditionalGeneration(config)
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            output_dir=folder,
            max_steps=STEPS,
            per_device_train_batch_size=BATCH,
            learning_rate=1e-3,
            optim="adamw_torch_fused",
            logging_strategy="no",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            dataloader_pin_memory=False,
        )
        TranslationTrainer(model=model, args=args, train_dataset=Pairs(), callbacks=[clock]).train()
    print(f"{clock.rate:.1f} steps/s")


if __name__ == "__main__":
    main()
