# /// clinic
# expect = ["PD05.padded-batches"]
# stratum = "twins"
# domain = "language"
# ///
"""Fine-tune a small BERT to route customer tickets to the right desk.

The tickets are generated: each desk has its own favourite words, mixed into a common vocabulary.
Most tickets are a sentence or two, a few customers write whole stories.
"""

import random
import time
from dataclasses import dataclass, field

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)


DESKS = ["billing", "shipping", "returns", "technical", "account", "other"]


@dataclass
class Config:
    seed: int = 11
    vocabulary: int = 4000
    train_tickets: int = 6000
    test_tickets: int = 480
    max_length: int = 128
    hidden: int = 128
    layers: int = 2
    heads: int = 4
    batch_size: int = 16
    learning_rate: float = 5e-4
    epochs: int = 1
    tokenizer_options: dict = field(default_factory=dict)

    def __post_init__(self):
        self.tokenizer_options = {"truncation": True, "max_length": self.max_length}
        self.tokenizer_options["padding"] = "max_length"  # sick here
        self.tokenizer_options["padding"] = False  # well


def write_tickets(count, cfg, rng):
    """Texts and desks. The length of a ticket is log-normal, about 30 words in the median."""
    words = np.array([f"w{i}" for i in range(cfg.vocabulary)])
    desks = rng.integers(0, len(DESKS), size=count)
    lengths = np.clip(np.exp(rng.normal(3.4, 0.4, size=count)).astype(int), 6, cfg.max_length - 2)
    texts = []
    for desk, length in zip(desks, lengths):
        common = rng.zipf(1.3, size=length) % cfg.vocabulary
        special = 100 + desk * 60 + rng.integers(0, 60, size=length)
        mixed = np.where(rng.random(length) < 0.12, special, common)
        texts.append(" ".join(words[mixed]))
    return texts, desks.tolist()


def build_tokenizer(cfg):
    vocabulary = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3}
    for i in range(cfg.vocabulary):
        vocabulary[f"w{i}"] = len(vocabulary)
    backend = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )


class TicketDataset(torch.utils.data.Dataset):
    """Tokenized once, up front."""

    def __init__(self, texts, labels, tokenizer, options):
        encoded = tokenizer(["[CLS] " + text for text in texts], **options)  # here
        self.input_ids = encoded["input_ids"]
        self.attention_mask = encoded["attention_mask"]
        self.labels = labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {
            "input_ids": self.input_ids[index],
            "attention_mask": self.attention_mask[index],
            "labels": self.labels[index],
        }


class Progress(TrainerCallback):
    def __init__(self):
        self.start = time.monotonic()

    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "loss" in logs:
            print(
                f"step {state.global_step}/{state.max_steps} loss {float(logs['loss']):.3f} "
                f"{time.monotonic() - self.start:.1f} s",
                flush=True,
            )


def accuracy(prediction):
    guesses = prediction.predictions.argmax(-1)
    return {"accuracy": float((guesses == prediction.label_ids).mean())}


def build_model(cfg, tokenizer):
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=cfg.hidden,
            num_hidden_layers=cfg.layers,
            num_attention_heads=cfg.heads,
            intermediate_size=4 * cfg.hidden,
            max_position_embeddings=cfg.max_length,
            num_labels=len(DESKS),
            pad_token_id=0,
        )
    )


def main():
    cfg = Config()
    set_seed(cfg.seed)
    random.seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)

    tokenizer = build_tokenizer(cfg)
    train = TicketDataset(*write_tickets(cfg.train_tickets, cfg, rng), tokenizer, cfg.tokenizer_options)  # here
    test = TicketDataset(*write_tickets(cfg.test_tickets, cfg, rng), tokenizer, cfg.tokenizer_options)

    arguments = TrainingArguments(
        output_dir="/tmp/ticket_intents",
        per_device_train_batch_size=cfg.batch_size,
        per_device_eval_batch_size=4 * cfg.batch_size,
        num_train_epochs=cfg.epochs,
        learning_rate=cfg.learning_rate,
        weight_decay=0.01,
        logging_steps=50,
        save_strategy="no",
        eval_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=cfg.seed,
    )
    trainer = Trainer(
        model=build_model(cfg, tokenizer),
        args=arguments,
        train_dataset=train,
        eval_dataset=test,
        data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=accuracy,
        callbacks=[Progress()],
    )
    trainer.train()
    print("test accuracy", round(trainer.evaluate()["eval_accuracy"], 3))


if __name__ == "__main__":
    main()
