# /// clinic
# expect = ["PD05.mixed-lengths"]
# stratum = "twins"
# domain = "document layout"
# ///
"""Token labelling of scanned pages (title, paragraph, table, list, figure caption, footer) with a small LayoutLM."""

import random
import time

import numpy as np
import torch
from transformers import (
    LayoutLMConfig,
    LayoutLMForTokenClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

LABELS = ["title", "paragraph", "table", "list", "caption", "footer"]
VOCABULARY = 3000
CLS, SEP, PAD = 1, 2, 0
MAX_TOKENS = 320
PAGES, HELD_OUT = 1800, 120


class PageMaker:
    """Draws pages as stacked blocks; each block has a label, a region and words typical of its label."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def words(self, label, count):
        typical = 100 + label * 450 + self.rng.integers(0, 450, count)
        common = self.rng.integers(100, VOCABULARY, count)
        return np.where(self.rng.random(count) < 0.4, typical, common)

    def page(self):
        kind = self.rng.random()
        # Receipts, letters and cover sheets; contracts and papers.
        low, high = (30, 90) if kind < 0.88 else (200, MAX_TOKENS - 2)
        target = int(self.rng.integers(low, high))
        tokens, boxes, labels, y = [], [], [], 20
        while len(tokens) < target:
            label = int(self.rng.integers(len(LABELS)))
            count = min(int(self.rng.integers(8, 60)), target - len(tokens))
            columns = 10
            x = 40 + (np.arange(count) % columns) * 90
            rows = y + (np.arange(count) // columns) * 14
            box = np.stack([x, rows, x + 80, rows + 12], axis=1)
            y = int(rows[-1]) + 24
            tokens.extend(self.words(label, count).tolist())
            boxes.extend(np.clip(box, 0, 1000).tolist())
            labels.extend([label] * count)
        return {
            "input_ids": [CLS, *tokens, SEP],
            "bbox": [[0, 0, 0, 0], *boxes, [1000, 1000, 1000, 1000]],
            "labels": [-100, *labels, -100],
        }


class PageDataset(torch.utils.data.Dataset):
    def __init__(self, pages):
        self.pages = pages

    def __len__(self):
        return len(self.pages)

    def __getitem__(self, index):
        return self.pages[index]


def collate_pages(pages):
    width = max(len(page["input_ids"]) for page in pages)
    ids = torch.full((len(pages), width), PAD)
    boxes = torch.zeros(len(pages), width, 4, dtype=torch.long)
    labels = torch.full((len(pages), width), -100)
    mask = torch.zeros(len(pages), width, dtype=torch.long)
    for row, page in enumerate(pages):
        n = len(page["input_ids"])
        ids[row, :n] = torch.tensor(page["input_ids"])
        boxes[row, :n] = torch.tensor(page["bbox"])
        labels[row, :n] = torch.tensor(page["labels"])
        mask[row, :n] = 1
    return {"input_ids": ids, "bbox": boxes, "attention_mask": mask, "labels": labels}


def token_scores(prediction):
    guess, truth = prediction
    kept = truth != -100
    return {"accuracy": float((guess[kept] == truth[kept]).mean())}


class StepClock(TrainerCallback):
    def __init__(self):
        self.start, self.steps = None, 0

    def on_step_end(self, args, state, control, **kwargs):
        self.steps = state.global_step
        if self.steps == 5:
            self.start = time.perf_counter()

    def rate(self):
        return (self.steps - 5) / (time.perf_counter() - self.start)


def main():
    set_seed(3)
    random.seed(3)
    maker = PageMaker(seed=3)
    pages = [maker.page() for _ in range(PAGES)]
    config = LayoutLMConfig(
        vocab_size=VOCABULARY,
        hidden_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=384,
        max_position_embeddings=MAX_TOKENS,
        max_2d_position_embeddings=1024,
        num_labels=len(LABELS),
        pad_token_id=PAD,
    )
    model = LayoutLMForTokenClassification(config)
    sampling = "random"  # sick
    sampling = "group_by_length"  # well
    arguments = TrainingArguments(
        output_dir="pages",
        num_train_epochs=2,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=16,
        learning_rate=5e-4,
        weight_decay=0.01,
        warmup_steps=20,
        lr_scheduler_type="cosine",
        train_sampling_strategy=sampling,
        eval_strategy="epoch",
        logging_steps=50,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        use_cpu=True,
    )
    clock = StepClock()
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=PageDataset(pages[HELD_OUT:]),
        eval_dataset=PageDataset(pages[:HELD_OUT]),
        data_collator=collate_pages,
        preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1),
        compute_metrics=token_scores,
        callbacks=[clock],
    )
    trainer.train()
    print(f"{clock.rate():.2f} steps/s")


if __name__ == "__main__":
    main()
