# /// clinic
# expect = ["PD05.padded-batches"]
# stratum = "twins"
# domain = "grading of tannery hides from vat notes"
# ///
"""Tannery: grade a finished hide from the notes that the vat men wrote down on its way through the yard.

The notes are plain words from a small vocabulary, so a word-level tokenizer and a small BERT will do.
"""

import os
import random
import time

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    Trainer,
    PrinterCallback,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)
from transformers.utils import logging as hf_logging

hf_logging.set_verbosity_error()

STAGES = "soak lime flesh delime bate pickle tan samm split shave retan dye fatliquor dry stake buff".split()
HOW = "cold warm long short slow brisk fresh spent mild sharp even patchy".split()
FAULTS = "salt-stain grain-draw flay-cut scud tick-mark brand bloat putrid".split()
CURES = "rinsed trimmed scraped limed-again re-bated smoothed".split()
FILLER = "vat drum paddle beam yard batch lot back side belly shoulder butt left right by old new".split()
GRADES = ("reject", "lining", "upper", "saddle")


def write_notes(rng: random.Random):
    words, trouble = [], 0.0
    for _ in range(rng.randint(6, 24)):
        words.append(rng.choice(STAGES))
        words += rng.sample(FILLER, rng.randint(0, 2))
        words.append(rng.choice(HOW))
        if rng.random() < 0.18:
            fault = rng.choice(FAULTS)
            words.append(fault)
            weight = 1.0 + 0.5 * (FAULTS.index(fault) >= 5)
            if rng.random() < 0.4:
                words.append(rng.choice(CURES))
                weight *= 0.3
            trouble += weight
    grade = 3 - int(np.digitize(trouble, [0.9, 2.1, 3.6]))
    return " ".join(words), grade


def build_tokenizer(max_words):
    vocab = {w: i for i, w in enumerate(["[PAD]", "[UNK]", "[CLS]", *STAGES, *HOW, *FAULTS, *CURES, *FILLER])}
    core = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", model_max_length=max_words
    )


class HideNotes(Dataset):
    def __init__(self, tokenizer, count, seed):
        rng = random.Random(seed)
        notes, self.grades = zip(*(write_notes(rng) for _ in range(count)))
        coded = tokenizer(["[CLS] " + n for n in notes], truncation=True, return_token_type_ids=False)
        self.input_ids, self.attention_mask = coded["input_ids"], coded["attention_mask"]

    def __len__(self):
        return len(self.grades)

    def __getitem__(self, i):
        return {
            "input_ids": self.input_ids[i],
            "attention_mask": self.attention_mask[i],
            "labels": self.grades[i],
        }


class Ledger(TrainerCallback):
    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        print(
            f"epoch {state.epoch:.0f}: loss {metrics['eval_loss']:.3f} accuracy {metrics['eval_accuracy']:.3f}",
            flush=True,
        )


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def main():
    set_seed(23)
    tokenizer = build_tokenizer(max_words=128)
    train = HideNotes(tokenizer, 2048, seed=1)
    held_out = HideNotes(tokenizer, 256, seed=2)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=256,
        max_position_embeddings=tokenizer.model_max_length,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=tokenizer.pad_token_id,
        num_labels=len(GRADES),
    )
    model = BertForSequenceClassification(config)
    args = TrainingArguments(
        output_dir="tannery_out",
        num_train_epochs=float(os.environ.get("EPOCHS", 9)),
        per_device_train_batch_size=32,
        per_device_eval_batch_size=64,
        learning_rate=1e-3,
        warmup_steps=60,
        weight_decay=0.01,
        train_sampling_strategy="group_by_length",
        eval_strategy="epoch",
        save_strategy="no",
        logging_strategy="no",
        dataloader_pin_memory=False,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=23,
    )
    collator = DataCollatorWithPadding(tokenizer, padding="max_length")  # sick here
    collator = DataCollatorWithPadding(tokenizer, padding="longest")  # well
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=train,
        eval_dataset=held_out,
        data_collator=collator,
        compute_metrics=accuracy,
        callbacks=[Ledger()],
    )
    trainer.remove_callback(PrinterCallback)
    start = time.perf_counter()
    trainer.train()
    print(f"total training seconds: {time.perf_counter() - start:.1f}")


if __name__ == "__main__":
    main()
