# /// clinic
# expect = ["PD20.outputs-kept"]
# stratum = "twins"
# domain = "text classification of support tickets (transformers Trainer)"
# ///
"""Route support tickets to teams with a small DistilBERT (transformers Trainer); ticket embeddings are kept for search."""

import tempfile

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    DistilBertConfig,
    DistilBertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)


TEAMS = ("billing", "shipping", "returns", "account", "technical", "legal", "sales", "press")
VOCABULARY, LENGTH, FIRST_WORD, CLS, SEP = 4000, 64, 10, 1, 2


class Tickets(Dataset):
    """Synthetic tickets: each team has its own favourite words among those that all of them use."""

    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.teams = rng.integers(len(TEAMS), size=count)
        words = rng.zipf(1.3, size=(count, LENGTH)) % (VOCABULARY - FIRST_WORD) + FIRST_WORD
        favourites = FIRST_WORD + 200 + 40 * self.teams[:, None] + rng.integers(40, size=(count, LENGTH))
        words = np.where(rng.random((count, LENGTH)) < 0.12, favourites, words)
        words[:, 0], words[:, -1] = CLS, SEP
        self.words = torch.from_numpy(words)

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        return {"input_ids": self.words[index], "labels": int(self.teams[index])}


def collate(tickets):
    words = torch.stack([ticket["input_ids"] for ticket in tickets])
    return {
        "input_ids": words,
        "attention_mask": torch.ones_like(words),
        "labels": torch.tensor([ticket["labels"] for ticket in tickets]),
    }


def macro_f1(predicted, truth):
    scores = []
    for team in range(len(TEAMS)):
        hits = np.sum((predicted == team) & (truth == team))
        scores.append(2 * hits / max(1, np.sum(predicted == team) + np.sum(truth == team)))
    return float(np.mean(scores))


def compute_metrics(evaluated):
    outputs, truth = evaluated
    logits = outputs[0] if isinstance(outputs, tuple) else outputs
    predicted = logits.argmax(-1)
    return {"accuracy": float((predicted == truth).mean()), "f1": macro_f1(predicted, truth)}


def build_model():
    sizes = dict(vocab_size=VOCABULARY, max_position_embeddings=LENGTH, dim=128, hidden_dim=256, n_heads=4, n_layers=4)
    config = DistilBertConfig(**sizes, num_labels=len(TEAMS), output_hidden_states=True)  # sick here
    config = DistilBertConfig(**sizes, num_labels=len(TEAMS))  # well
    return DistilBertForSequenceClassification(config)


class Report(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        shown = {name: round(value, 4) for name, value in logs.items() if isinstance(value, float)}
        print(f"step {state.global_step}/{state.max_steps}: {shown}", flush=True)


@torch.no_grad()
def embed(model, tickets, batch_size=32):
    """Mean of the last two layers, for the nearest-ticket search of the help desk."""
    model.eval()
    vectors = []
    for start in range(0, len(tickets), batch_size):
        batch = collate([tickets[i] for i in range(start, min(start + batch_size, len(tickets)))])
        del batch["labels"]
        layers = model(**batch, output_hidden_states=True).hidden_states
        vectors.append((layers[-1] + layers[-2]).mean(1) / 2)
    return torch.nn.functional.normalize(torch.cat(vectors), dim=-1)


def main():
    set_seed(23)
    train, held_out = Tickets(1280, seed=1), Tickets(1200, seed=2)
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            output_dir=folder,
            num_train_epochs=4,
            per_device_train_batch_size=32,
            learning_rate=5e-4,
            warmup_steps=20,
            weight_decay=0.01,
            logging_steps=20,
            eval_strategy="epoch",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            dataloader_pin_memory=False,
        )
        trainer = Trainer(
            model=build_model(),
            args=args,
            train_dataset=train,
            eval_dataset=held_out,
            data_collator=collate,
            compute_metrics=compute_metrics,
            callbacks=[Report()],
        )
        trainer.train()  # here
    vectors = embed(trainer.model, Tickets(64, seed=3))
    near = (vectors @ vectors.T).fill_diagonal_(-1).max(1).values
    print(f"embedded {len(vectors)} tickets, mean similarity of the nearest {near.mean():.3f}")


if __name__ == "__main__":
    main()
