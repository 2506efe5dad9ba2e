# /// clinic
# expect = ["PD05.padded-batches"]
# stratum = "twins"
# domain = "proteomics: elution time of peptides"
# ///
"""Elution time of tryptic peptides on a C18 column, from their sequence alone.

A small BERT reads the residues (with oxidised methionine as a letter of its own) and predicts the normalised
elution time (iRT). The gradient is simulated: hydrophobicity with end effects, a bit of noise.
"""

import tempfile

import numpy as np
import torch
from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from torch.utils.data import Dataset
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


RESIDUES = "ACDEFGHIKLMNPQRSTVWYo"  # o: oxidised methionine
SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
HYDROPHOBICITY = dict(
    zip(
        RESIDUES,
        [
            0.8,
            -0.8,
            -0.5,
            0.0,
            10.5,
            -0.9,
            -1.3,
            8.4,
            -1.9,
            9.6,
            5.8,
            -1.2,
            0.2,
            -0.9,
            -1.3,
            -0.8,
            0.4,
            5.0,
            11.0,
            4.0,
            1.5,
        ],
    )
)
PEPTIDES = 14000
STEPS = 250
BATCH = 64


def digest(count, rng):
    """Tryptic peptides: K or R at the end, 7 to 40 residues, mostly short."""
    lengths = np.clip(7 + rng.gamma(2.0, 4.6, count), 7, 40).astype(int)
    inner = np.array([r for r in RESIDUES if r not in "KR"])
    peptides = []
    for length in lengths:
        body = "".join(inner[rng.integers(0, len(inner), length - 1)])
        peptides.append(body + ("K" if rng.random() < 0.55 else "R"))
    return peptides


def elution_time(peptide, rng):
    values = np.array([HYDROPHOBICITY[r] for r in peptide])
    values[:3] *= (0.42, 0.22, 0.05)  # residues near the N terminus count less
    total = values.sum() * (1 - 0.014 * max(len(peptide) - 10, 0))
    return total + rng.normal(0, 0.6)


def build_tokenizer():
    vocabulary = {token: i for i, token in enumerate(SPECIAL + list(RESIDUES))}
    raw = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    raw.pre_tokenizer = Split(Regex("."), behavior="isolated")
    return PreTrainedTokenizerFast(
        tokenizer_object=raw,
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        unk_token="[UNK]",
        model_input_names=["input_ids", "attention_mask"],
    )


class Peptides(Dataset):
    def __init__(self, tokenizer, peptides, times):
        self.ids = tokenizer(["[CLS]" + p for p in peptides], add_special_tokens=False)["input_ids"]
        self.times = times.astype(np.float32)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        ids = self.ids[index]
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": float(self.times[index])}


class Progress(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "loss" in logs:
            print(f"step {state.global_step:4d}  loss {float(logs['loss']):.4f}", flush=True)


def make_collator(tokenizer):
    return DataCollatorWithPadding(tokenizer, padding="longest", pad_to_multiple_of=32)  # sick here
    return DataCollatorWithPadding(tokenizer, padding="longest")  # well


def main():
    set_seed(11)
    rng = np.random.default_rng(11)
    peptides = digest(PEPTIDES, rng)
    times = np.array([elution_time(p, rng) for p in peptides])
    times = (times - times.mean()) / times.std()

    tokenizer = build_tokenizer()
    train = Peptides(tokenizer, peptides[1000:], times[1000:])
    held_out = Peptides(tokenizer, peptides[:1000], times[:1000])

    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=144,
        num_hidden_layers=4,
        num_attention_heads=6,
        intermediate_size=432,
        max_position_embeddings=128,
        pad_token_id=tokenizer.pad_token_id,
        num_labels=1,
        problem_type="regression",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = BertForSequenceClassification(config)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters, {len(train)} peptides")

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=STEPS,
            per_device_train_batch_size=BATCH,
            per_device_eval_batch_size=128,
            learning_rate=4e-4,
            warmup_steps=20,
            weight_decay=0.01,
            lr_scheduler_type="cosine",
            train_sampling_strategy="group_by_length",
            logging_steps=25,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
            seed=11,
        )
        trainer = Trainer(
            model=model,
            args=arguments,
            train_dataset=train,
            eval_dataset=held_out,
            data_collator=make_collator(tokenizer),
            callbacks=[Progress()],
        )  # here
        trainer.train()
        answer = trainer.predict(held_out)
    error = np.abs(answer.predictions[:, 0] - answer.label_ids)
    print(f"held out: mean absolute error {error.mean():.3f}, 95 % window {2 * np.quantile(error, 0.95):.3f}")


if __name__ == "__main__":
    torch.set_printoptions(precision=3)
    main()
