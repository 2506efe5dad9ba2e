# /// clinic
# expect = ["PD09.wide-feed-forward"]
# stratum = "twins"
# domain = "wool grading"
# ///
"""Grade greasy fleeces from projection-microscope snapshots (small ViT, trained from scratch)."""

import math
import time
from dataclasses import dataclass

import numpy as np
import torch
from scipy.ndimage import gaussian_filter
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments, ViTConfig, ViTForImageClassification, set_seed

GRADES = ["superfine", "fine", "medium", "strong", "kemp"]
MICRONS = [16.5, 19.0, 22.5, 28.0, 36.0]


@dataclass
class Study:
    image_size: int = 64
    train_fleeces: int = 640
    eval_fleeces: int = 160
    batch_size: int = 16
    epochs: int = 5
    lr: float = 4e-4
    seed: int = 11


def draw_fibres(rng, micron, size):
    """A snapshot: snippets of fibre at random angles, scale edges as a fine ripple along each of them."""
    yy, xx = np.mgrid[0:size, 0:size].astype(np.float32)
    field = np.zeros((size, size), dtype=np.float32)
    for _ in range(rng.integers(5, 10)):
        angle = rng.uniform(0, math.pi)
        cx, cy = rng.uniform(0, size, 2)
        across = (xx - cx) * math.sin(angle) - (yy - cy) * math.cos(angle)
        along = (xx - cx) * math.cos(angle) + (yy - cy) * math.sin(angle)
        half = micron * rng.normal(1.0, 0.08) / 14.0
        body = (np.abs(across) < half) & (np.abs(along) < rng.uniform(14, 34))
        ripple = 0.75 + 0.25 * np.sin(along * 6.0 / half)
        field = np.maximum(field, body * ripple)
        if micron > 26 and rng.random() < 0.6:
            field[(np.abs(across) < half * 0.35) & body] *= 0.3
    field = gaussian_filter(field, 0.6)
    return field + rng.normal(0, 0.06, field.shape)


class FleeceSnapshots(Dataset):
    def __init__(self, count, size, seed):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, len(GRADES), count)
        shots = [draw_fibres(rng, MICRONS[g] + rng.normal(0, 0.7), size) for g in self.labels]
        shots = np.stack(shots).astype(np.float32)
        self.images = torch.from_numpy((shots - shots.mean()) / shots.std())[:, None]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {"pixel_values": self.images[i], "labels": int(self.labels[i])}


class FlipCollator:
    """Turns the slide: fibres have no up and no down."""

    def __init__(self, train=True):
        self.train = train

    def __call__(self, rows):
        pixels = torch.stack([r["pixel_values"] for r in rows])
        if self.train:
            turns = int(torch.randint(0, 4, ()))
            pixels = torch.rot90(pixels, turns, dims=(2, 3)).contiguous()
        return {"pixel_values": pixels, "labels": torch.tensor([r["labels"] for r in rows])}


def weighted_kappa(pred, true, k):
    table = np.zeros((k, k))
    np.add.at(table, (true, pred), 1)
    grid = (np.arange(k)[:, None] - np.arange(k)[None]) ** 2 / (k - 1) ** 2
    expected = np.outer(table.sum(1), table.sum(0)) / table.sum()
    return 1 - (grid * table).sum() / (grid * expected).sum()


def compute_metrics(output):
    pred = output.predictions.argmax(-1)
    true = output.label_ids
    return {
        "accuracy": float((pred == true).mean()),
        "kappa": float(weighted_kappa(pred, true, len(GRADES))),
        "within_one": float((np.abs(pred - true) <= 1).mean()),
    }


class Stopwatch(TrainerCallback):
    def __init__(self):
        self.began = None
        self.took = None

    def on_step_begin(self, args, state, control, **kwargs):
        if self.began is None:
            self.began = time.perf_counter()

    def on_train_end(self, args, state, control, **kwargs):
        self.took = time.perf_counter() - self.began


def build_model(study):
    config = ViTConfig(  # here
        image_size=study.image_size,
        patch_size=16,
        num_channels=1,
        hidden_size=256,  # here
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=1024,  # well
        hidden_dropout_prob=0.1,
        num_labels=len(GRADES),
        id2label=dict(enumerate(GRADES)),
        label2id={g: i for i, g in enumerate(GRADES)},
    )
    return ViTForImageClassification(config)


def main():
    study = Study()
    set_seed(study.seed)
    train = FleeceSnapshots(study.train_fleeces, study.image_size, study.seed)
    held = FleeceSnapshots(study.eval_fleeces, study.image_size, study.seed + 1)
    model = build_model(study)
    print(f"{model.num_parameters() / 1e6:.2f} M parameters, {len(train)} fleeces")
    watch = Stopwatch()
    args = TrainingArguments(
        output_dir="fleece_runs",
        num_train_epochs=study.epochs,
        per_device_train_batch_size=study.batch_size,
        per_device_eval_batch_size=32,
        learning_rate=study.lr,
        weight_decay=0.05,
        warmup_steps=20,
        lr_scheduler_type="cosine",
        eval_strategy="epoch",
        save_strategy="no",
        logging_steps=20,
        report_to="none",
        remove_unused_columns=False,
        disable_tqdm=True,
        use_cpu=True,
        seed=study.seed,
    )
    trainer = Trainer(
        model=model,
        args=args,
        data_collator=FlipCollator(),
        train_dataset=train,
        eval_dataset=held,
        compute_metrics=compute_metrics,
        callbacks=[watch],
    )
    trainer.train()
    last = [row for row in trainer.state.log_history if "eval_kappa" in row][-1]
    print(f"accuracy {last['eval_accuracy']:.3f}  kappa {last['eval_kappa']:.3f}")
    rate = study.epochs * len(train) / watch.took
    print(f"{rate:.1f} samples/s")


if __name__ == "__main__":
    main()
