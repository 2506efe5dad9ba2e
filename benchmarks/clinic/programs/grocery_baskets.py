# /// clinic
# expect = ["PD20.outputs-kept"]
# stratum = "twins"
# domain = "next product in a grocery basket with GPT-2 and the transformers Trainer"
# ///
"""The next product in a grocery basket: a small GPT-2 over product numbers, trained from scratch with the transformers Trainer.

Baskets are synthetic: customers shop along a few themes (breakfast, barbecue, ...), and products of a theme follow each other.
"""

import os
import tempfile

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed


PRODUCTS = 5000
THEMES = 40
BASKET = 32


def make_baskets(count, seed):
    rng = np.random.default_rng(seed)
    shelf = np.random.default_rng(0).permutation(PRODUCTS).reshape(THEMES, -1)
    theme = rng.integers(0, THEMES, (count, 1))
    theme = np.where(rng.random((count, BASKET)) < 0.15, rng.integers(0, THEMES, (count, BASKET)), theme)
    place = np.minimum(rng.geometric(0.08, (count, BASKET)), shelf.shape[1]) - 1
    return torch.from_numpy(shelf[theme, place].astype(np.int64))


class Baskets(Dataset):
    def __init__(self, count, seed):
        self.products = make_baskets(count, seed)

    def __len__(self):
        return len(self.products)

    def __getitem__(self, index):
        return {"input_ids": self.products[index], "labels": self.products[index]}


def best_guess(logits, labels):
    """The product with the highest score, at each place of the basket."""
    return logits.argmax(dim=-1)


def hit_rate(prediction):
    guesses, labels = prediction.predictions, prediction.label_ids
    if guesses.ndim == 3:
        guesses = guesses.argmax(axis=-1)  # here
    guesses, labels = guesses[:, :-1], labels[:, 1:]
    return {
        "hit_rate": float((guesses == labels).mean()),
        "late_hit_rate": float((guesses[:, BASKET // 2 :] == labels[:, BASKET // 2 :]).mean()),
        "products_guessed": len(np.unique(guesses)),
    }


def build_model():
    config = GPT2Config(
        vocab_size=PRODUCTS,
        n_positions=BASKET,
        n_embd=128,
        n_layer=2,
        n_head=4,
        resid_pdrop=0.05,
        embd_pdrop=0.05,
        attn_pdrop=0.0,
        bos_token_id=None,
        eos_token_id=None,
        use_cache=False,
    )
    return GPT2LMHeadModel(config)


def main():
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    set_seed(5)
    train, holdout = Baskets(12000, seed=1), Baskets(480, seed=2)
    model = build_model()
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} million parameters, {len(train)} baskets")

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            use_cpu=True,
            max_steps=300,
            per_device_train_batch_size=16,
            per_device_eval_batch_size=16,
            learning_rate=2e-3,
            warmup_steps=30,
            weight_decay=0.01,
            lr_scheduler_type="cosine",
            logging_steps=20,
            eval_strategy="steps",
            eval_steps=50,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        trainer = Trainer(  # sick here
            model=model,  # sick
            args=arguments,  # sick
            train_dataset=train,  # sick
            eval_dataset=holdout,  # sick
            compute_metrics=hit_rate,  # sick here
        )  # sick
        trainer = Trainer(  # well
            model=model,  # well
            args=arguments,  # well
            train_dataset=train,  # well
            eval_dataset=holdout,  # well
            compute_metrics=hit_rate,  # well
            preprocess_logits_for_metrics=best_guess,  # well
        )  # well
        trainer.train()
        print(trainer.state.log_history[-2])


if __name__ == "__main__":
    main()
