# /// clinic
# expect = ["PD14.frequent-checkpoints"]
# stratum = "twins"
# domain = "folk music: few-shot classification of dances from ABC notation"
# ///
"""Which dance is this opening from? Few-shot tuning of a small BERT on folk tunes in ABC notation (transformers Trainer)."""

import random
import shutil
import tempfile
import warnings

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed


warnings.filterwarnings("ignore", category=UserWarning)

NOTES = [n + o for o in ("", "'", ",") for n in ("C", "D", "E", "F", "G", "A", "B", "c", "d", "e", "f", "g", "a", "b")]
LENGTHS = ["", "2", "3", "4", "/2", "3/2"]
# slots in a bar, chance of a long note, steps of the melody
DANCES = {
    "jig": (6, 0.15, (-1, -1, 1, 1, 2)),
    "reel": (8, 0.1, (-2, -1, 1, 2)),
    "waltz": (6, 0.6, (-3, -1, 0, 1, 3)),
    "polka": (4, 0.3, (-1, 0, 0, 1)),
}
KEYS = ["G", "D", "A", "Em", "Am", "Bm", "C", "Ador"]


class AbcTokens:
    """Whole words of the notation: a note with its length is one token, so are bars and keys."""

    def __init__(self):
        words = ["<pad>", "<tune>", "<end>", "|", "|:", ":|", "z"]
        words += [f"K:{k}" for k in KEYS]
        words += [acc + n + length for acc in ("", "^", "_", "=") for n in NOTES for length in LENGTHS]
        words += [f"({a}{b}{c})" for a in NOTES[:14] for b in NOTES[:14] for c in NOTES[:14]]
        self.words, self.index = words, {w: i for i, w in enumerate(words)}

    def __len__(self):
        return len(self.words)

    def encode(self, words):
        return [self.index[w] for w in words]


def phrase(rng, rhythm, n):
    """The first notes of a tune that walks about its scale; each dance has its own steps and lengths."""
    slots, long_note, stride = DANCES[rhythm]
    at, left = rng.randrange(4, 10), slots
    words = ["<tune>", f"K:{rng.choice(KEYS)}"]
    while len(words) < n:
        at = min(13, max(0, at + rng.choice(stride)))
        if left >= 3 and rng.random() < 0.08:
            words.append(f"({NOTES[at]}{NOTES[min(13, at + 1)]}{NOTES[at]})")
            left -= 2
        else:
            size = 2 if left >= 2 and rng.random() < long_note else 1
            words.append(NOTES[at] + ("2" if size == 2 else ""))
            left -= size
        if left <= 0:
            words.append("|")
            left = slots
    return words[:n]


class Phrases(Dataset):
    """`shots` phrases of each dance."""

    def __init__(self, tokens, shots, length, seed):
        rng = random.Random(seed)
        self.rows = []
        for label, rhythm in enumerate(DANCES):
            for _ in range(shots):
                ids = torch.tensor(tokens.encode(phrase(rng, rhythm, length)))
                self.rows.append({"input_ids": ids, "labels": torch.tensor(label)})

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def build_model(tokens, length):
    config = BertConfig(
        vocab_size=len(tokens),
        max_position_embeddings=length,
        hidden_size=512,
        num_hidden_layers=4,
        num_attention_heads=8,
        intermediate_size=2048,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.0,
        num_labels=len(DANCES),
        pad_token_id=tokens.index["<pad>"],
    )
    return BertForSequenceClassification(config)


def training_arguments(out):
    keep = dict(save_strategy="epoch", save_total_limit=2)  # sick here
    keep = dict(save_strategy="steps", save_steps=100, save_total_limit=2)  # well
    return TrainingArguments(
        output_dir=out,
        num_train_epochs=130,
        per_device_train_batch_size=8,
        learning_rate=2e-4,
        warmup_steps=20,
        lr_scheduler_type="cosine",
        weight_decay=0.01,
        logging_steps=20,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
        seed=4,
        **keep,
    )


def accuracy(trainer, data):
    scores = trainer.predict(data)
    return (scores.predictions.argmax(-1) == scores.label_ids).mean()


def main():
    set_seed(4)
    length = 8
    tokens = AbcTokens()
    few, test = Phrases(tokens, 4, length, seed=4), Phrases(tokens, 40, length, seed=5)
    model = build_model(tokens, length)
    print(f"{len(few)} phrases, {len(tokens)} words, {model.num_parameters() / 1e6:.1f} M parameters", flush=True)
    out = tempfile.mkdtemp(prefix="dances_")
    trainer = Trainer(model=model, args=training_arguments(out), train_dataset=few)
    result = trainer.train()
    print(f"{result.metrics['train_runtime']:.1f} s, mean loss {result.training_loss:.4f}")
    print(f"accuracy on {len(test)} new phrases: {accuracy(trainer, test):.3f}")
    shutil.rmtree(out)


if __name__ == "__main__":
    main()
