# /// clinic
# expect = ["PD04.explicit-collect"]
# stratum = "twins"
# domain = "tariff chapter of customs goods descriptions (transformers Trainer)"
# ///
"""Fine-tunes a small BERT that files customs declarations under their tariff chapter.

A declaration is one short line of goods description ("12 ctn frozen cod fillets, skin on"); the chapter is one of 40.
The real declarations are confidential, so that this copy of the script draws its lines from word lists of each chapter.
"""

import gc
import random
import resource

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


CHAPTERS = 40
WORDS_PER_CHAPTER = 60
SHARED_WORDS = 400
MAX_LENGTH = 48
PAD, CLS, SEP = 0, 1, 2
FIRST_WORD = 3
VOCABULARY = FIRST_WORD + SHARED_WORDS + CHAPTERS * WORDS_PER_CHAPTER


class Declarations(Dataset):
    """Encoded goods descriptions, encoded once and kept as two tensors."""

    def __init__(self, lines, seed):
        rng = random.Random(seed)
        self.input_ids = torch.full((lines, MAX_LENGTH), PAD, dtype=torch.long)
        self.labels = torch.zeros(lines, dtype=torch.long)
        for row in range(lines):
            chapter = rng.randrange(CHAPTERS)
            words = self.describe(chapter, rng)
            ids = [CLS, *words, SEP]
            self.input_ids[row, : len(ids)] = torch.tensor(ids)
            self.labels[row] = chapter
        self.attention_mask = (self.input_ids != PAD).long()

    @staticmethod
    def describe(chapter, rng):
        """Word numbers of one description: mostly packing and trade words, some that tell the chapter."""
        words = []
        for _ in range(rng.randrange(38, MAX_LENGTH - 2)):
            told = rng.random()
            if told < 0.45:
                words.append(FIRST_WORD + rng.randrange(SHARED_WORDS))
            else:
                source = chapter if told < 0.95 else rng.randrange(CHAPTERS)
                offset = source * WORDS_PER_CHAPTER + rng.randrange(WORDS_PER_CHAPTER)
                words.append(FIRST_WORD + SHARED_WORDS + offset)
        return words

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, row):
        return {
            "input_ids": self.input_ids[row],
            "attention_mask": self.attention_mask[row],
            "labels": self.labels[row],
        }


class MemoryKeeper(TrainerCallback):
    """The customs office's virtual machine has little memory: keep the process small and say how large it is."""

    def __init__(self):
        self.peaks = []

    def on_step_end(self, args, state, control, **kwargs):  # sick
        gc.collect()  # sick here

    def on_epoch_end(self, args, state, control, **kwargs):
        gc.collect()  # well
        self.peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)

    def on_train_end(self, args, state, control, **kwargs):
        print("peak memory by epoch, MiB:", [round(peak) for peak in self.peaks])


class PrintProgress(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "loss" in logs:
            print(f"step {state.global_step:4d} of {state.max_steps}  loss {float(logs['loss']):.3f}", flush=True)


def accuracy(prediction):
    chosen = np.argmax(prediction.predictions, axis=-1)
    return {"accuracy": float((chosen == prediction.label_ids).mean())}


def build_model():
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=112,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=448,
        max_position_embeddings=MAX_LENGTH,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        num_labels=CHAPTERS,
        pad_token_id=PAD,
    )
    return BertForSequenceClassification(config)


def main():
    set_seed(17)
    train = Declarations(3200, seed=1)
    held_out = Declarations(640, seed=2)
    model = build_model()
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters, {len(train)} declarations")

    arguments = TrainingArguments(
        output_dir="/tmp/tariff_codes",
        per_device_train_batch_size=40,
        per_device_eval_batch_size=128,
        num_train_epochs=2,
        learning_rate=2e-3,
        warmup_steps=15,
        weight_decay=0.01,
        logging_steps=20,
        save_strategy="no",
        eval_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=17,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=train,
        eval_dataset=held_out,
        compute_metrics=accuracy,
        callbacks=[MemoryKeeper(), PrintProgress()],  # here
    )
    trainer.train()
    print("held out:", {name: round(value, 3) for name, value in trainer.evaluate().items() if "accuracy" in name})


if __name__ == "__main__":
    main()
