# /// clinic
# expect = ["PD05.padded-batches"]
# stratum = "twins"
# domain = "braille proof sheets"
# ///
"""Proofreading of embossed braille sheets: tags each cell of a passage as sound or as one of four embossing faults."""

import random
import time

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForTokenClassification, Trainer, TrainerCallback, TrainingArguments

PAD, BOS, EOS, BLANK = 64, 65, 66, 0
FAULTS = ["sound", "lost_dot", "extra_dot", "mirrored", "doubled"]
MAX_CELLS = 240
SEED = 11

MIRROR = np.zeros(64, dtype=np.int64)
for cell in range(64):
    dots = [(cell >> d) & 1 for d in range(6)]
    MIRROR[cell] = sum(bit << ((d + 3) % 6) for d, bit in enumerate(dots))


def make_lexicon(rng, words=900):
    """A vocabulary of contracted-braille words with Zipf weights."""
    lengths = rng.integers(1, 9, size=words)
    lexicon = [rng.integers(1, 64, size=n) for n in lengths]
    weights = 1.0 / np.arange(1, words + 1) ** 0.9
    return lexicon, weights / weights.sum()


def emboss(rng, text):
    """Copies the text to a sheet with faults; returns cells and one label for each cell."""
    cells, labels = [], []
    for value in text:
        draw = rng.random()
        label, out = 0, int(value)
        if value != BLANK and draw < 0.04:
            raised = [d for d in range(6) if value >> d & 1]
            out, label = int(value) & ~(1 << int(rng.choice(raised))), 1
        elif draw < 0.07:
            flat = [d for d in range(6) if not value >> d & 1]
            if flat:
                out, label = int(value) | 1 << int(rng.choice(flat)), 2
        elif draw < 0.09 and MIRROR[value] != value:
            out, label = int(MIRROR[value]), 3
        cells.append(out)
        labels.append(label)
        if draw > 0.985:
            cells.append(out)
            labels.append(4)
    return cells[: MAX_CELLS - 2], labels[: MAX_CELLS - 2]


class ProofSheets(Dataset):
    def __init__(self, count, lexicon, weights, seed):
        rng = np.random.default_rng(seed)
        targets = np.clip(rng.lognormal(mean=4.05, sigma=0.5, size=count), 12, MAX_CELLS - 2).astype(int)
        self.rows = []
        for target in targets:
            words = rng.choice(len(lexicon), size=target // 3 + 4, p=weights)
            text = np.concatenate([np.append(lexicon[w], BLANK) for w in words])[:target]
            cells, labels = emboss(rng, text)
            self.rows.append({"input_ids": [BOS, *cells, EOS], "labels": [-100, *labels, -100]})

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


class SheetCollator:
    """Turns passages into rectangular tensors."""

    def __init__(self, pad_id=PAD, max_cells=MAX_CELLS):
        self.pad_id = pad_id
        self.max_cells = max_cells

    def __call__(self, rows):
        width = self.max_cells  # sick here
        width = max(len(row["input_ids"]) for row in rows)  # well
        ids = torch.full((len(rows), width), self.pad_id, dtype=torch.long)
        labels = torch.full((len(rows), width), -100, dtype=torch.long)
        mask = torch.zeros((len(rows), width), dtype=torch.long)
        for i, row in enumerate(rows):
            n = len(row["input_ids"])
            ids[i, :n] = torch.tensor(row["input_ids"])
            labels[i, :n] = torch.tensor(row["labels"])
            mask[i, :n] = 1
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}


class Stopwatch(TrainerCallback):
    def __init__(self):
        self.began = None
        self.ended = None

    def on_step_begin(self, args, state, control, **kwargs):
        if self.began is None:
            self.began = time.perf_counter()

    def on_train_end(self, args, state, control, **kwargs):
        self.ended = time.perf_counter()


def fault_scores(prediction):
    guess = prediction.predictions.argmax(-1)
    truth = prediction.label_ids
    kept = truth != -100
    guess, truth = guess[kept], truth[kept]
    scores = {"accuracy": float((guess == truth).mean())}
    for k, name in enumerate(FAULTS[1:], start=1):
        hit = ((guess == k) & (truth == k)).sum()
        scores[f"recall_{name}"] = float(hit / max(1, (truth == k).sum()))
    return scores


def main():
    random.seed(SEED)
    torch.manual_seed(SEED)
    lexicon, weights = make_lexicon(np.random.default_rng(SEED))
    train = ProofSheets(1600, lexicon, weights, seed=SEED + 1)
    held_out = ProofSheets(192, lexicon, weights, seed=SEED + 2)

    config = BertConfig(
        vocab_size=67,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=MAX_CELLS,
        type_vocab_size=1,
        pad_token_id=PAD,
        num_labels=len(FAULTS),
        id2label=dict(enumerate(FAULTS)),
        label2id={name: k for k, name in enumerate(FAULTS)},
    )
    model = BertForTokenClassification(config)

    args = TrainingArguments(
        output_dir="proof_runs",
        per_device_train_batch_size=16,
        per_device_eval_batch_size=32,
        num_train_epochs=2,
        learning_rate=8e-4,
        weight_decay=0.01,
        warmup_steps=20,
        lr_scheduler_type="cosine",
        eval_strategy="epoch",
        save_strategy="no",
        logging_steps=40,
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        use_cpu=True,
        seed=SEED,
    )
    watch = Stopwatch()
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=train,
        eval_dataset=held_out,
        data_collator=SheetCollator(),
        compute_metrics=fault_scores,
        callbacks=[watch],
    )
    trainer.train()
    seen = len(train) * int(args.num_train_epochs)
    rate = seen / (watch.ended - watch.began)
    print(f"{rate:.1f} samples/s")


if __name__ == "__main__":
    main()
