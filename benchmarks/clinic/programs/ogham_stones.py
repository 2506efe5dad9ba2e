# /// clinic
# expect = ["PD05.padded-batches"]
# stratum = "twins"
# domain = "ogham inscriptions"
# ///
"""Restore worn letters of ogham inscriptions with a small masked language model."""

import time
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainerCallback, TrainingArguments, set_seed

LETTERS = "BLVSNHDTCQMGNZRAOUEI"
FORMULA = ["MAQI", "MUCOI", "AVI", "CELI", "ANM", "KOI", "INIGENA", "NETTA", "VELITAS", "DECCEDDAS"]
ONSETS = ["CATT", "CUN", "LUG", "DOV", "BRAN", "ERC", "VED", "TASEG", "COIMAG", "DALAG", "SEGOM", "ART"]
ENDINGS = ["AS", "I", "OS", "IAS", "AGNI", "UCI", "ACI", "EDDAS"]
MAX_LENGTH = 160


class StoneTokenizer:
    """Letters, a word divider, a worn-edge sign and the usual special tokens."""

    def __init__(self):
        signs = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", " ", "/"] + sorted(set(LETTERS + "KP"))
        self.ids = {sign: i for i, sign in enumerate(signs)}
        self.pad, self.cls, self.sep, self.mask = 0, 1, 2, 3

    def __len__(self):
        return len(self.ids)

    def encode(self, text, max_length=MAX_LENGTH):
        body = [self.ids[c] for c in text if c in self.ids][: max_length - 2]
        return [self.cls] + body + [self.sep]

    def pad_batch(self, rows, padding, max_length=MAX_LENGTH):
        width = max_length if padding == "max_length" else max(len(r) for r in rows)
        ids = torch.full((len(rows), width), self.pad, dtype=torch.long)
        attention = torch.zeros(len(rows), width, dtype=torch.long)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = torch.tensor(row)
            attention[i, : len(row)] = 1
        return ids, attention


def carve(rng):
    """One inscription: name, formula word, name ...; most are short, some cover several edges of a pillar."""
    words = [str(rng.choice(ONSETS)) + str(rng.choice(ENDINGS))]
    for _ in range(int(np.clip(rng.lognormal(0.8, 0.6), 1, 11))):
        words.append(str(rng.choice(FORMULA)))
        words.append(str(rng.choice(ONSETS)) + str(rng.choice(ENDINGS)))
        if rng.random() < 0.15:
            words.append("/")
    return " ".join(words)


class Corpus(Dataset):
    def __init__(self, count, tokenizer, seed):
        rng = np.random.default_rng(seed)
        self.texts = [carve(rng) for _ in range(count)]
        self.rows = [tokenizer.encode(t) for t in self.texts]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"input_ids": self.rows[i]}

    def describe(self):
        sizes = np.array([len(r) for r in self.rows])
        return f"{len(self)} inscriptions, signs: median {np.median(sizes):.0f}, longest {sizes.max()}"


@dataclass
class WearCollator:
    """Weathers the stones: hides single letters and short runs of letters."""

    alphabet: StoneTokenizer
    padding: str
    rate: float = 0.12
    run: float = 0.35

    def __call__(self, features):
        ids, attention = self.alphabet.pad_batch([f["input_ids"] for f in features], padding=self.padding)
        legible = ids > self.alphabet.mask
        worn = torch.rand(ids.shape) < self.rate
        spread = torch.roll(worn, 1, dims=1) & (torch.rand(ids.shape) < self.run)
        worn = (worn | spread) & legible
        worn[:, 1] |= ~worn.any(dim=1)
        labels = torch.where(worn, ids, torch.full_like(ids, -100))
        damaged = ids.masked_fill(worn, self.alphabet.mask)
        return {"input_ids": damaged, "attention_mask": attention, "labels": labels}


class FieldNotes(TrainerCallback):
    """Keeps the clock and prints the restoration loss after each epoch."""

    def __init__(self):
        self.began = None
        self.ended = None

    def on_step_begin(self, args, state, control, **kwargs):
        if self.began is None:
            self.began = time.perf_counter()

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        print(f"epoch {state.epoch:.0f}: held-out loss {metrics['eval_loss']:.3f}")

    def on_train_end(self, args, state, control, **kwargs):
        self.ended = time.perf_counter()


def build_model(tokenizer):
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=384,
        max_position_embeddings=MAX_LENGTH,
        type_vocab_size=1,
        pad_token_id=tokenizer.pad,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.0,
    )
    return BertForMaskedLM(config)


@torch.no_grad()
def restore(model, tokenizer, text, at):
    """Best guesses for one worn letter."""
    model.eval()
    row = tokenizer.encode(text)
    row[at] = tokenizer.mask
    logits = model(input_ids=torch.tensor([row])).logits[0, at]
    names = {i: s for s, i in tokenizer.ids.items()}
    return [names[i] for i in logits.topk(3).indices.tolist()]


def main():
    set_seed(17)
    tokenizer = StoneTokenizer()
    train, held_out = Corpus(1920, tokenizer, seed=1), Corpus(160, tokenizer, seed=2)
    print("train:", train.describe())
    padding = "max_length"  # sick here
    padding = "longest"  # well
    notes = FieldNotes()
    args = TrainingArguments(
        output_dir="stones",
        num_train_epochs=2,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=32,
        learning_rate=6e-4,
        warmup_steps=30,
        weight_decay=0.01,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        logging_steps=60,
        prediction_loss_only=True,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=build_model(tokenizer),
        args=args,
        data_collator=WearCollator(tokenizer, padding),
        train_dataset=train,
        eval_dataset=held_out,
        callbacks=[notes],
    )
    trainer.train()
    print("guesses for the third sign:", restore(trainer.model, tokenizer, held_out.texts[0], at=3))
    rate = len(train) * args.num_train_epochs / (notes.ended - notes.began)
    print(f"{rate:.1f} inscriptions/s")


if __name__ == "__main__":
    main()
