# /// clinic
# expect = ["PD05.padded-batches"]
# stratum = "twins"
# domain = "Silbo Gomero whistled language (Accelerate, tiny BERT)"
# ///
"""Where on the island was it whistled?  Ravine of origin from transcribed Silbo utterances.

Every utterance is a line of contour symbols ("up-s", "flat-l", ...) as our annotators type them.  Ravines differ
in their habits: which contours follow each other, how often a long tone closes a phrase.
"""

import argparse
import time

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch.utils.data import DataLoader, Dataset, Sampler
from torchmetrics.classification import MulticlassAccuracy
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    get_cosine_schedule_with_warmup,
)

CONTOURS = ["up", "down", "flat", "arch", "dip", "trill", "fall", "stop"]
LENGTHS = ["s", "m", "l"]
SYMBOLS = [f"{c}-{n}" for c in CONTOURS for n in LENGTHS]
RAVINES = ["Hermigua", "Agulo", "Vallehermoso", "Valle Gran Rey", "Alajero", "Benchijigua"]


class Annotators:
    """Draws utterances from one Markov chain for each ravine."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        chains = np.random.default_rng(7)
        common = chains.gamma(1.0, size=(len(SYMBOLS), len(SYMBOLS)))
        self.tables = []
        for _ in RAVINES:
            own = common * chains.gamma(3.0, 1 / 3.0, size=common.shape)
            self.tables.append(np.cumsum(own / own.sum(1, keepdims=True), axis=1))

    def utterance(self, ravine: int) -> str:
        length = int(np.clip(self.rng.lognormal(np.log(52), 0.55), 10, 300))
        table, now, words = self.tables[ravine], self.rng.integers(len(SYMBOLS)), []
        for u in self.rng.random(length):
            now = min(int(np.searchsorted(table[now], u)), len(SYMBOLS) - 1)
            words.append(SYMBOLS[now])
        return " ".join(words)

    def corpus(self, size: int):
        ravines = self.rng.integers(len(RAVINES), size=size)
        return [self.utterance(r) for r in ravines], ravines.tolist()


def make_tokenizer(max_length: int) -> PreTrainedTokenizerFast:
    vocabulary = {w: i for i, w in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *SYMBOLS])}
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    raw.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=raw,
        model_max_length=max_length,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    )


class Utterances(Dataset):
    def __init__(self, texts, ravines, tokenizer):
        self.lengths = [len(t.split()) for t in texts]
        self.ravines = ravines
        self.rows = tokenizer(
            texts,
            truncation=True,
            padding="max_length",  # sick here
            return_token_type_ids=False,
        )

    def __len__(self):
        return len(self.ravines)

    def __getitem__(self, i):
        return {
            "input_ids": self.rows["input_ids"][i],
            "attention_mask": self.rows["attention_mask"][i],
            "labels": self.ravines[i],
        }


class SimilarLengths(Sampler):
    """Shuffled batches whose members are about equally long."""

    def __init__(self, lengths, batch_size, pool=24):
        self.lengths, self.batch_size, self.pool = np.asarray(lengths), batch_size, pool

    def __len__(self):
        return len(self.lengths) // self.batch_size

    def __iter__(self):
        order = np.random.permutation(len(self.lengths))
        step, batches = self.batch_size * self.pool, []
        for start in range(0, len(order), step):
            chunk = order[start : start + step]
            chunk = chunk[np.argsort(self.lengths[chunk], kind="stable")]
            batches += [chunk[i : i + self.batch_size] for i in range(0, len(chunk), self.batch_size)]
        batches = [b.tolist() for b in batches if len(b) == self.batch_size]
        for i in np.random.permutation(len(batches)):
            yield batches[i]


@torch.inference_mode()
def validate(model, loader, metric):
    model.eval()
    metric.reset()
    for batch in loader:
        labels = batch.pop("labels")
        metric.update(model(**batch).logits, labels)
    model.train()
    return metric.compute().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=48)
    parser.add_argument("--utterances", type=int, default=4096)
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--lr", type=float, default=1.5e-3)
    args = parser.parse_args()

    set_seed(11)
    accelerator = Accelerator()
    tokenizer = make_tokenizer(args.max_length)
    collate = DataCollatorWithPadding(tokenizer)
    train = Utterances(*Annotators(1).corpus(args.utterances), tokenizer)
    held_out = Utterances(*Annotators(2).corpus(384), tokenizer)
    train_loader = DataLoader(train, batch_sampler=SimilarLengths(train.lengths, args.batch_size), collate_fn=collate)
    val_loader = DataLoader(
        held_out, batch_sampler=SimilarLengths(held_out.lengths, args.batch_size), collate_fn=collate
    )
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=192,
            max_position_embeddings=args.max_length,
            num_labels=len(RAVINES),
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01, fused=True)
    total = args.epochs * len(train_loader)
    schedule = get_cosine_schedule_with_warmup(optimizer, total // 20, total)
    model, optimizer, train_loader, val_loader, schedule = accelerator.prepare(
        model, optimizer, train_loader, val_loader, schedule
    )
    metric = MulticlassAccuracy(len(RAVINES), average="micro")

    began = time.perf_counter()
    for epoch in range(args.epochs):
        running = torch.zeros(())
        for batch in train_loader:
            loss = model(**batch).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            running += loss.detach()
        accuracy = validate(model, val_loader, metric)
        accelerator.print(
            f"epoch {epoch}  loss {running.item() / len(train_loader):.3f}  ravine right {accuracy:.3f}"
            f"  {time.perf_counter() - began:.1f} s"
        )
    accelerator.print(f"total training seconds: {time.perf_counter() - began:.1f}")


if __name__ == "__main__":
    main()
