# /// clinic
# expect = ["PD16.searched-modules"]
# stratum = "twins"
# domain = "dialect maps"
# ///
"""Dialect area of a survey point from its questionnaire answers, with the transformers Trainer.

The atlas has a few thousand survey points; at each one the informants answered a questionnaire, and the phonetic
variant of every answer was coded. Points lie on a map, isoglosses are made by smooth fields over it, and the areas by
the nearest of a dozen centres. The classifier reads the coded answers as a sequence.
"""

import time

import numpy as np
import torch
from scipy.interpolate import RegularGridInterpolator
from scipy.spatial import cKDTree
from torch.utils.data import Dataset
from torchmetrics.functional.classification import multiclass_accuracy, multiclass_f1_score
from transformers import (
    DistilBertConfig,
    DistilBertForSequenceClassification,
    EarlyStoppingCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

QUESTIONS = 56
VARIANTS = 9
AREAS = 12
SILENT, CLS = 0, 1
FIRST = 2
VOCABULARY = FIRST + QUESTIONS * VARIANTS


def survey(points, rng):
    """Coordinates, coded answers (0 where the informant had none) and the dialect area of each point."""
    where = rng.uniform(0, 1, (points, 2))
    centres = rng.uniform(0.1, 0.9, (AREAS, 2))
    _, area = cKDTree(centres).query(where + rng.normal(0, 0.015, where.shape))
    axis = np.linspace(0, 1, 8)
    answers = np.zeros((points, QUESTIONS), dtype=np.int64)
    for question in range(QUESTIONS):
        fields = np.stack(
            [
                RegularGridInterpolator((axis, axis), rng.normal(0, 1, (8, 8)), method="linear")(where)
                for _ in range(VARIANTS)
            ],
            axis=1,
        )
        fields += rng.gumbel(0, 0.35, fields.shape)
        answers[:, question] = FIRST + question * VARIANTS + fields.argmax(1)
    answers[rng.uniform(size=answers.shape) < 0.08] = SILENT
    return where, answers, area


class SurveyPoints(Dataset):
    def __init__(self, answers, areas):
        self.answers, self.areas = answers, areas

    def __len__(self):
        return len(self.areas)

    def __getitem__(self, index):
        return {"input_ids": self.answers[index], "labels": int(self.areas[index])}


class AnswerCollator:
    """Stacks the questionnaires behind a class token; silences some of the answers, as a shorter interview would."""

    def __init__(self, model, silenced):
        self.model, self.silenced = model, silenced

    def __call__(self, features):
        answers = torch.from_numpy(np.stack([feature["input_ids"] for feature in features]))
        if self.model.training:
            answers = answers.masked_fill(torch.rand(answers.shape) < self.silenced, SILENT)
        ids = torch.cat([torch.full((len(answers), 1), CLS), answers], dim=1)
        return {"input_ids": ids, "labels": torch.tensor([feature["labels"] for feature in features])}


def compute_metrics(prediction):
    logits, labels = torch.from_numpy(prediction.predictions), torch.from_numpy(prediction.label_ids)
    return {
        "accuracy": multiclass_accuracy(logits, labels, AREAS, average="micro").item(),
        "macro_f1": multiclass_f1_score(logits, labels, AREAS, average="macro").item(),
        "top3": multiclass_accuracy(logits, labels, AREAS, average="micro", top_k=3).item(),
    }


class Pace(TrainerCallback):
    def on_train_begin(self, args, state, control, **kwargs):
        self.began = time.perf_counter()

    def on_train_end(self, args, state, control, **kwargs):
        self.rate = state.global_step * args.per_device_train_batch_size / (time.perf_counter() - self.began)


class History(TrainerCallback):
    def on_evaluate(self, args, state, control, metrics, **kwargs):
        line = ", ".join(f"{key[5:]} {metrics[key]:.3f}" for key in ("eval_loss", "eval_accuracy", "eval_macro_f1"))
        print(f"epoch {state.epoch:.0f}: {line}")


def build_model():
    config = DistilBertConfig(
        vocab_size=VOCABULARY,
        dim=128,
        hidden_dim=512,
        n_layers=2,
        n_heads=4,
        max_position_embeddings=QUESTIONS + 1,
        num_labels=AREAS,
        pad_token_id=SILENT,
        seq_classif_dropout=0.1,
    )
    return DistilBertForSequenceClassification(config)


def main():
    set_seed(29)
    rng = np.random.default_rng(29)
    where, answers, areas = survey(1920, rng)
    cut = 1536
    train, held = SurveyPoints(answers[:cut], areas[:cut]), SurveyPoints(answers[cut:], areas[cut:])
    debug = "underflow_overflow"  # sick here
    debug = ""  # well
    arguments = TrainingArguments(
        output_dir="dialect_runs",
        num_train_epochs=3,
        per_device_train_batch_size=24,
        per_device_eval_batch_size=64,
        dataloader_drop_last=True,
        learning_rate=5e-4,
        lr_scheduler_type="cosine",
        warmup_steps=30,
        weight_decay=0.01,
        max_grad_norm=1.0,
        label_smoothing_factor=0.05,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        load_best_model_at_end=True,
        metric_for_best_model="macro_f1",
        logging_steps=20,
        report_to="none",
        use_cpu=True,
        dataloader_pin_memory=False,
        disable_tqdm=True,
        debug=debug,
        seed=29,
    )
    pace, model = Pace(), build_model()
    trainer = Trainer(
        model=model,
        args=arguments,
        data_collator=AnswerCollator(model, silenced=0.05),
        train_dataset=train,
        eval_dataset=held,
        compute_metrics=compute_metrics,
        callbacks=[pace, History(), EarlyStoppingCallback(early_stopping_patience=20)],
    )
    trainer.train()
    scores = trainer.predict(held)
    guess = scores.predictions.argmax(1)
    missed = where[cut:][guess != areas[cut:]]
    print(f"{len(missed)} of {len(held)} held-out points in another area, mean position {missed.mean(0).round(2)}")
    print(f"{pace.rate:.1f} points/s")


if __name__ == "__main__":
    main()
