# /// clinic
# expect = ["PD05.mixed-lengths"]
# stratum = "twins"
# domain = "papyrus fragments"
# ///
"""Restoration of lacunae in documentary papyri.

A small character-level encoder learns to fill the gaps of fragments (letters lost to worms, folds and damp) from the
letters around them. Fragments range from scraps with a handful of letters to nearly whole columns of a roll.
"""

import time
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainerCallback, TrainingArguments, set_seed

LETTERS = list("αβγδεζηθικλμνξοπρστυφχψω")
SPECIAL = ["[PAD]", "[LACUNA]", "[EDGE]", "[VACAT]"]
VOCAB = {token: i for i, token in enumerate(SPECIAL + LETTERS)}
PAD, LACUNA, EDGE, VACAT = (VOCAB[t] for t in SPECIAL)
LONGEST = 384
SAMPLING = "random"  # sick here
SAMPLING = "group_by_length"  # well


def scribal_chain(rng: np.random.Generator, hands: int = 6) -> np.ndarray:
    """Letter-to-letter transition tables, one for each scribal hand."""
    n = len(LETTERS)
    common = rng.gamma(0.25, size=(n, n))
    tables = common + 0.3 * rng.gamma(0.25, size=(hands, n, n))
    return tables / tables.sum(-1, keepdims=True)


def write_fragments(count: int, seed: int) -> list[np.ndarray]:
    """Fragments of letters; surviving lengths are skewed as in the excavated collections."""
    tables = scribal_chain(np.random.default_rng(7))
    rng = np.random.default_rng(seed)
    cumulative = tables.cumsum(-1)
    lengths = np.clip(rng.lognormal(mean=3.6, sigma=0.66, size=count), 8, LONGEST - 2).astype(int)
    hand = rng.integers(0, len(tables), size=count)
    letters = np.zeros((count, lengths.max()), dtype=np.int64)
    letters[:, 0] = rng.integers(0, len(LETTERS), size=count)
    for t in range(1, letters.shape[1]):
        u = rng.random((count, 1))
        letters[:, t] = np.minimum((u > cumulative[hand, letters[:, t - 1]]).sum(1), len(LETTERS) - 1)
    fragments = []
    for row, length in zip(letters, lengths):
        ids = row[:length] + len(SPECIAL)
        blanks = rng.random(length) < 0.02
        fragments.append(np.where(blanks, VACAT, ids))
    return fragments


class FragmentDataset(Dataset):
    def __init__(self, fragments: list[np.ndarray]):
        self.rows = [torch.from_numpy(np.concatenate([[EDGE], f, [EDGE]])) for f in fragments]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> dict:
        return {"input_ids": self.rows[i]}


@dataclass
class LacunaCollator:
    """Cuts gaps of one to five letters into each fragment; the letters that were there are the labels."""

    share: float = 0.15
    widest: int = 5

    def __call__(self, features: list[dict]) -> dict:
        rows, labels = [], []
        for feature in features:
            ids = feature["input_ids"].clone()
            target = torch.full_like(ids, -100)
            gaps = max(1, int(self.share * len(ids) / ((1 + self.widest) / 2)))
            starts = torch.randint(1, len(ids) - 1, (gaps,)).tolist()
            widths = torch.randint(1, self.widest + 1, (gaps,)).tolist()
            for start, width in zip(starts, widths):
                stop = min(start + width, len(ids) - 1)
                target[start:stop] = feature["input_ids"][start:stop]
                ids[start:stop] = LACUNA
            rows.append(ids)
            labels.append(target)
        input_ids = pad_sequence(rows, batch_first=True, padding_value=PAD)
        return {
            "input_ids": input_ids,
            "attention_mask": (input_ids != PAD).long(),
            "labels": pad_sequence(labels, batch_first=True, padding_value=-100),
        }


class Stopwatch(TrainerCallback):
    def on_train_begin(self, args, state, control, **kwargs):
        self.began = time.perf_counter()

    def on_train_end(self, args, state, control, **kwargs):
        self.seconds = time.perf_counter() - self.began


def letters_restored(prediction) -> dict:
    guesses, labels = prediction
    lost = labels != -100
    return {"restored": float((guesses[lost] == labels[lost]).mean())}


def main() -> None:
    set_seed(325)
    train_set = FragmentDataset(write_fragments(2240, seed=1))
    held_out = FragmentDataset(write_fragments(192, seed=2))

    config = BertConfig(
        vocab_size=len(VOCAB),
        hidden_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=288,
        max_position_embeddings=LONGEST,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.0,
        pad_token_id=PAD,
        type_vocab_size=1,
    )
    model = BertForMaskedLM(config)

    args = TrainingArguments(
        output_dir="restorer",
        per_device_train_batch_size=16,
        per_device_eval_batch_size=16,
        num_train_epochs=2,
        learning_rate=6e-4,
        lr_scheduler_type="cosine",
        warmup_steps=30,
        weight_decay=0.01,
        train_sampling_strategy=SAMPLING,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        logging_steps=40,
        dataloader_num_workers=0,
        dataloader_pin_memory=False,
        disable_tqdm=True,
        report_to="none",
        use_cpu=True,
        seed=325,
    )
    watch = Stopwatch()
    trainer = Trainer(
        model=model,
        args=args,
        data_collator=LacunaCollator(),
        train_dataset=train_set,
        eval_dataset=held_out,
        compute_metrics=letters_restored,
        preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1),
        callbacks=[watch],
    )
    trainer.train()
    final = trainer.state.log_history[-2]
    print(f"held-out loss {final.get('eval_loss', float('nan')):.3f}, restored {final.get('eval_restored', 0):.1%}")
    rate = len(train_set) * args.num_train_epochs / watch.seconds
    print(f"{rate:.1f} fragments/s")


if __name__ == "__main__":
    main()
