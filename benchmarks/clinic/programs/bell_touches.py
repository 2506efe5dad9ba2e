# /// clinic
# expect = ["PD05.padded-batches"]
# stratum = "twins"
# domain = "change ringing (church bells)"
# ///
"""Which method is being rung?

Touches of change ringing on eight bells, written down as place notation by a listener who mishears
now and then. A small BERT reads a touch and names the method. Data are composed on the fly, so the
script needs nothing but a few seconds of patience.
"""

import random
import tempfile
import time

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    set_seed,
)

SEED = 11
PLACES = ["18", "12", "14", "16", "36", "38", "56", "58", "34", "78", "1458", "1236"]
CALLS = {"plain": "12", "bob": "14", "single": "1234"}
METHODS = 14
MAX_CHANGES = 224
EPOCHS = 6


def compose_methods(rng):
    """Half leads of eight changes, made symmetric like real treble-dodging methods. Half of the
    methods are relatives of another one: they differ from it in two places only."""
    halves = []
    for number in range(METHODS):
        if number % 2 == 0:
            half = [rng.choice(PLACES) for _ in range(8)]
        else:
            half = list(halves[-1])
            for spot in rng.sample(range(8), 2):
                half[spot] = rng.choice([p for p in PLACES if p != half[spot]])
        halves.append(half)
    leads = []
    for half in halves:
        crossed = [change for place in half for change in ("x", place)]
        leads.append(crossed + crossed[-2::-1])
    return leads


def ring_touch(lead, rng, mishear=0.06):
    """Ring leads until the touch comes round; short touches are the common ones on a practice night."""
    length = int(min(MAX_CHANGES - 2, 36 + rng.gammavariate(2.0, 26.0)))
    start = rng.randrange(len(lead))
    changes = list(lead[start:])
    while len(changes) < length:
        call = rng.choices(list(CALLS), weights=[6, 3, 1])[0]
        changes.append(CALLS[call])
        changes.extend(lead)
    heard = []
    for change in changes[:length]:
        dice = rng.random()
        if dice < mishear / 3:
            continue
        heard.append(rng.choice(PLACES) if dice < mishear else change)
    return " ".join(heard)


def build_tokenizer():
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "x", "1234"] + PLACES
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=MAX_CHANGES,
    )


class Touches(Dataset):
    def __init__(self, leads, size, tokenizer, seed):
        rng = random.Random(seed)
        self.labels = [rng.randrange(METHODS) for _ in range(size)]
        texts = [ring_touch(leads[label], rng) for label in self.labels]
        self.encodings = tokenizer(texts, truncation=True, return_token_type_ids=False)["input_ids"]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        ids = self.encodings[index]
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": self.labels[index]}


def accuracy(prediction):
    logits, labels = prediction
    return {"accuracy": float((np.argmax(logits, axis=-1) == labels).mean())}


def main():
    set_seed(SEED)
    leads = compose_methods(random.Random(SEED))
    tokenizer = build_tokenizer()
    train = Touches(leads, 2048, tokenizer, seed=1)
    valid = Touches(leads, 256, tokenizer, seed=2)

    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=192,
        max_position_embeddings=MAX_CHANGES,
        num_labels=METHODS,
        hidden_dropout_prob=0.05,
        attention_probs_dropout_prob=0.0,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = BertForSequenceClassification(config)
    collator = DataCollatorWithPadding(tokenizer, padding="max_length", max_length=MAX_CHANGES)  # sick here
    collator = DataCollatorWithPadding(tokenizer, padding="longest")  # well

    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            output_dir=folder,
            num_train_epochs=EPOCHS,
            per_device_train_batch_size=32,
            per_device_eval_batch_size=64,
            train_sampling_strategy="group_by_length",
            learning_rate=1e-3,
            warmup_steps=40,
            weight_decay=0.01,
            eval_strategy="epoch",
            save_strategy="no",
            logging_steps=64,
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            seed=SEED,
        )
        trainer = Trainer(
            model=model,
            args=args,
            train_dataset=train,
            eval_dataset=valid,
            data_collator=collator,
            compute_metrics=accuracy,
        )
        begin = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - begin

    final = [entry for entry in trainer.state.log_history if "eval_accuracy" in entry][-1]
    lengths = [len(ids) for ids in train.encodings]
    print(f"changes per touch: median {np.median(lengths):.0f}, longest {max(lengths)}")
    print(f"parameters: {sum(p.numel() for p in model.parameters())}, torch {torch.__version__}")
    print(f"accuracy on unheard touches: {final['eval_accuracy']:.3f}")
    print(f"total training seconds: {seconds:.1f}")


if __name__ == "__main__":
    main()
