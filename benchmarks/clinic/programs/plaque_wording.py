# /// clinic
# expect = ["PD20.outputs-kept"]
# stratum = "twins"
# domain = "enamel plaques"
# ///
# Language model for the wording of enamel plaques (street names, warnings, opening hours), trained with transformers.
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

VOCAB = 3000
LENGTH = 64
PAD, BOS, BREAK = 0, 1, 2


@dataclass
class Sizes:
    train: int = 656
    held_out: int = 512
    phrases: int = 600
    width: int = 128
    layers: int = 2
    heads: int = 4
    batch: int = 16
    epochs: int = 4


def phrase_bank(rng, count):
    """Stock phrases as the enamel works offered them: few common words, many rare names."""
    weights = 1.0 / np.arange(1, VOCAB - 2) ** 0.8
    weights /= weights.sum()
    return [3 + rng.choice(VOCAB - 3, size=int(rng.integers(2, 8)), p=weights) for _ in range(count)]


def compose(rng, bank, popularity):
    """Puts one plaque together from stock phrases, with line breaks between them."""
    tokens = [BOS]
    while len(tokens) < LENGTH:
        tokens.extend(bank[rng.choice(len(bank), p=popularity)])
        tokens.append(BREAK)
    tokens = np.array(tokens[:LENGTH])
    if rng.random() < 0.3:
        tokens[int(rng.integers(LENGTH // 2, LENGTH)) :] = PAD
    return tokens


class Plaques(Dataset):
    def __init__(self, count, bank, popularity, seed):
        rng = np.random.default_rng(seed)
        self.tokens = torch.from_numpy(np.stack([compose(rng, bank, popularity) for _ in range(count)])).long()

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        tokens = self.tokens[index]
        filled = tokens != PAD
        return {
            "input_ids": tokens,
            "attention_mask": filled.long(),
            "labels": torch.where(filled, tokens, torch.full_like(tokens, -100)),
        }


def pick_tokens(logits, labels):  # well
    if isinstance(logits, tuple):  # well
        logits = logits[0]  # well
    return logits.argmax(dim=-1)  # well


def wording_scores(prediction):
    """Share of words guessed right, and share of plaques whose line breaks are all right."""
    outputs, labels = prediction.predictions, prediction.label_ids
    guesses = np.argmax(outputs, axis=-1)[:, :-1]  # sick here
    guesses = outputs[:, :-1]  # well
    targets = labels[:, 1:]
    filled = targets != -100
    right = (guesses == targets) & filled
    breaks = targets == BREAK
    all_breaks = ((guesses == BREAK) == breaks) | ~filled
    return {
        "word_accuracy": float(right.sum() / filled.sum()),
        "break_recall": float((right & breaks).sum() / max(breaks.sum(), 1)),
        "layout_accuracy": float(all_breaks.all(axis=1).mean()),
    }


class Stopwatch(TrainerCallback):
    """Notes when training began and ended."""

    def __init__(self):
        self.began = self.ended = None

    def on_train_begin(self, args, state, control, **kwargs):
        self.began = time.perf_counter()

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        words = {k: round(v, 4) for k, v in (metrics or {}).items() if k.endswith(("loss", "accuracy", "recall"))}
        print(f"step {state.global_step}: {words}")

    def on_train_end(self, args, state, control, **kwargs):
        self.ended = time.perf_counter()


def build_model(sizes):
    config = GPT2Config(
        vocab_size=VOCAB,
        n_positions=LENGTH,
        n_embd=sizes.width,
        n_layer=sizes.layers,
        n_head=sizes.heads,
        resid_pdrop=0.05,
        embd_pdrop=0.05,
        attn_pdrop=0.0,
        bos_token_id=BOS,
        eos_token_id=BREAK,
        pad_token_id=PAD,
        use_cache=False,
    )
    return GPT2LMHeadModel(config)


def main():
    sizes = Sizes()
    set_seed(5)
    rng = np.random.default_rng(5)
    bank = phrase_bank(rng, sizes.phrases)
    popularity = rng.dirichlet(np.full(sizes.phrases, 0.4))
    train = Plaques(sizes.train, bank, popularity, seed=6)
    held_out = Plaques(sizes.held_out, bank, popularity, seed=7)

    watch = Stopwatch()
    arguments = TrainingArguments(
        output_dir="plaques",
        num_train_epochs=sizes.epochs,
        per_device_train_batch_size=sizes.batch,
        per_device_eval_batch_size=8,
        learning_rate=1e-3,
        weight_decay=0.01,
        lr_scheduler_type="cosine",
        warmup_steps=20,
        eval_strategy="epoch",
        save_strategy="no",
        logging_steps=41,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        seed=5,
    )
    trainer = Trainer(
        model=build_model(sizes),
        args=arguments,
        train_dataset=train,
        eval_dataset=held_out,
        compute_metrics=wording_scores,  # here
        preprocess_logits_for_metrics=pick_tokens,  # well
        callbacks=[watch],
    )
    result = trainer.train()
    print(f"loss {result.training_loss:.3f} after {result.global_step} steps")
    rate = result.global_step * sizes.batch / (watch.ended - watch.began)
    print(f"{rate:.1f} samples/s")


if __name__ == "__main__":
    main()
