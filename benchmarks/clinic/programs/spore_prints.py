# /// clinic
# expect = ["PD20.evaluation-too-often"]
# stratum = "twins"
# domain = "fern spore images"
# ///
"""Fern spores under the microscope: a small ViT tells the laesura (monolete / trilete) and the wall ornament apart."""

import time

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    Trainer,
    TrainerCallback,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
    set_seed,
)

ORNAMENTS = ("smooth", "granulate", "reticulate")
LAESURAE = ("monolete", "trilete")
LABELS = [f"{laesura} {ornament}" for laesura in LAESURAE for ornament in ORNAMENTS]
SIDE = 48


def draw_spores(n, seed):
    """Grey images of single spores, in random orientation, slightly out of focus."""
    rng = np.random.default_rng(seed)
    axis = np.linspace(-1, 1, SIDE, dtype=np.float32)
    y, x = np.meshgrid(axis, axis, indexing="ij")
    label = rng.integers(0, len(LABELS), n)
    laesura, ornament = label // len(ORNAMENTS), label % len(ORNAMENTS)

    turn = rng.uniform(0, 2 * np.pi, (n, 1, 1)).astype(np.float32)
    cx, cy = rng.uniform(-0.15, 0.15, (2, n, 1, 1)).astype(np.float32)
    u = (x - cx) * np.cos(turn) + (y - cy) * np.sin(turn)
    v = (y - cy) * np.cos(turn) - (x - cx) * np.sin(turn)
    angle, radius = np.arctan2(v, u), np.sqrt(u**2 + v**2)

    tri = laesura[:, None, None] == 1
    outline = np.where(tri, 0.65 + 0.06 * np.cos(3 * angle), 0.62 + 0.1 * np.abs(np.cos(angle)))
    body = 1.0 / (1.0 + np.exp((radius - outline) * 30.0))
    scar = np.where(tri, np.abs(np.sin(1.5 * angle)) * radius, np.abs(v) + 0.3 * np.abs(u))
    image = 0.85 - 0.5 * body + 0.25 * body * np.exp(-((scar / 0.08) ** 2))

    fine = rng.normal(0, 0.12, (n, SIDE, SIDE))
    mesh = 0.1 * np.sin(22 * u) * np.sin(22 * v)
    kind = ornament[:, None, None]
    image = image + body * np.where(kind == 1, fine, np.where(kind == 2, mesh, 0.0))
    image = image + rng.normal(0, 0.03, image.shape)
    return torch.from_numpy(image.astype(np.float32)), torch.from_numpy(label)


class SporeSlides(Dataset):
    def __init__(self, n, seed, augment=False):
        images, self.labels = draw_spores(n, seed)
        self.images = ((images - 0.6) / 0.25).unsqueeze(1)
        self.augment = augment

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        image = self.images[i]
        if self.augment:
            turns = int(torch.randint(4, ()))
            image = torch.rot90(image, turns, (1, 2))
        return {"pixel_values": image, "labels": self.labels[i]}


def build_model():
    config = ViTConfig(
        image_size=SIDE,
        patch_size=8,
        num_channels=1,
        hidden_size=96,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=384,
        hidden_dropout_prob=0.1,
        id2label=dict(enumerate(LABELS)),
        label2id={name: i for i, name in enumerate(LABELS)},
    )
    return ViTForImageClassification(config)


def grade(prediction):
    """Accuracy over all six classes and for the two characters separately, and the worst class."""
    guess, truth = prediction.predictions.argmax(axis=1), prediction.label_ids
    right = guess == truth
    recalls = [right[truth == k].mean() for k in range(len(LABELS)) if (truth == k).any()]
    return {
        "accuracy": float(right.mean()),
        "laesura": float((guess // len(ORNAMENTS) == truth // len(ORNAMENTS)).mean()),
        "ornament": float((guess % len(ORNAMENTS) == truth % len(ORNAMENTS)).mean()),
        "worst_recall": float(min(recalls)),
    }


class Notebook(TrainerCallback):
    """Notes the course of the training and the best validation accuracy."""

    def __init__(self):
        self.began = self.ended = 0.0
        self.best, self.best_step = 0.0, 0

    def on_train_begin(self, args, state, control, **kwargs):
        self.began = time.perf_counter()

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        accuracy = (metrics or {}).get("eval_accuracy", 0.0)
        if accuracy > self.best:
            self.best, self.best_step = accuracy, state.global_step

    def on_train_end(self, args, state, control, **kwargs):
        self.ended = time.perf_counter()


def main():
    set_seed(1753)
    train_slides = SporeSlides(2400, seed=1, augment=True)
    val_slides = SporeSlides(640, seed=2)

    batch = 32
    eval_every = 10  # sick here
    eval_every = len(train_slides) // batch  # well
    args = TrainingArguments(
        output_dir="spore_runs",
        num_train_epochs=3,
        per_device_train_batch_size=batch,
        per_device_eval_batch_size=64,
        learning_rate=6e-4,
        weight_decay=0.03,
        warmup_steps=20,
        lr_scheduler_type="cosine",
        eval_strategy="steps",
        eval_steps=eval_every,  # here
        logging_steps=25,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_drop_last=True,
        dataloader_pin_memory=False,
        use_cpu=True,
        seed=1753,
    )
    notebook = Notebook()
    trainer = Trainer(
        model=build_model(),
        args=args,
        train_dataset=train_slides,
        eval_dataset=val_slides,
        compute_metrics=grade,
        callbacks=[notebook],
    )
    trainer.train()

    print(f"best accuracy {notebook.best:.3f} at step {notebook.best_step}")
    spores = trainer.state.global_step * batch
    rate = spores / (notebook.ended - notebook.began)
    print(f"{rate:.1f} spores/s")


if __name__ == "__main__":
    main()
