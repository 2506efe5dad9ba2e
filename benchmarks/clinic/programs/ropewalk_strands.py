# /// clinic
# expect = ["PD05.padded-batches"]
# stratum = "twins"
# domain = "ropewalk strand tension logs"
# ///
"""
Faults in laid rope from the tension logs of the ropewalk.

Every lay of a strand gives one log: the traveller's load cell, the hook speed and the humidity in the walk, read once
a second until the strand is hardened. Some lays are over in half a minute, a few take several minutes. We classify the
log by the fault that the ropemaker noted afterwards.
"""

import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset
from torchmetrics.functional.classification import multiclass_accuracy, multiclass_f1_score
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

FAULTS = ["sound", "slack yarn", "nicked yarn", "overlaid", "hockle"]
CHANNELS = 3
MAX_READINGS = 288
TRAIN_LOGS = 960
EVAL_LOGS = 160


def lay_strand(rng):
    seconds = int(np.clip(rng.gamma(3.0, 22.0), 24, MAX_READINGS))
    fault = int(rng.integers(len(FAULTS)))
    t = np.linspace(0, 1, seconds, dtype=np.float32)
    load = 40 + 60 * t**0.7
    speed = 12 - 3 * t
    at = int(rng.uniform(0.3, 0.8) * seconds)
    if fault == 1:
        load = load + 6 * np.sin(2 * np.pi * np.arange(seconds) / 9.0)
    elif fault == 2:
        load[at:] -= rng.uniform(8, 15)
    elif fault == 3:
        load = load * (1 + 0.25 * t)
        speed = speed + 2 * t
    elif fault == 4:
        load[at : at + 6] += rng.uniform(20, 35)
        speed[at : at + 6] -= 4
    humidity = rng.uniform(55, 85) + np.cumsum(rng.normal(0, 0.1, seconds))
    log = np.stack([(load - 70) / 25, (speed - 10) / 2, (humidity - 70) / 10], axis=1)
    log += rng.normal(0, 0.12, log.shape)
    return log.astype(np.float32), fault


class TensionLogs(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.items = [lay_strand(rng) for _ in range(n)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        log, fault = self.items[i]
        return {"readings": torch.from_numpy(log), "labels": fault}


def collate(items):
    longest = MAX_READINGS  # sick here
    longest = max(len(item["readings"]) for item in items)  # well
    readings = torch.zeros(len(items), longest, CHANNELS)
    mask = torch.zeros(len(items), longest, dtype=torch.bool)
    for row, item in enumerate(items):
        n = len(item["readings"])
        readings[row, :n] = item["readings"]
        mask[row, :n] = True
    return {"readings": readings, "mask": mask, "labels": torch.tensor([item["labels"] for item in items])}


class StrandTransformer(nn.Module):
    def __init__(self, dim=64, heads=2, layers=2, feedforward=128):
        super().__init__()
        self.project = nn.Linear(CHANNELS, dim)
        self.place = nn.Embedding(MAX_READINGS, dim)
        layer = nn.TransformerEncoderLayer(
            dim, heads, feedforward, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(2 * dim, len(FAULTS))
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.05)

    def forward(self, readings, mask, labels=None):
        place = self.place(torch.arange(readings.shape[1], device=readings.device))
        hidden = self.project(readings) + place
        hidden = self.norm(self.encoder(hidden, src_key_padding_mask=~mask))
        keep = mask.unsqueeze(-1)
        mean = (hidden * keep).sum(1) / keep.sum(1)
        peak = hidden.masked_fill(~keep, -1e4).amax(1)
        logits = self.head(torch.cat([mean, peak], dim=1))
        loss = None if labels is None else self.criterion(logits, labels)
        return {"loss": loss, "logits": logits}


class Stopwatch(TrainerCallback):
    """Wall time between the first step and the end of training."""

    def __init__(self):
        self.began = self.seconds = None

    def on_step_begin(self, args, state, control, **kwargs):
        if self.began is None:
            self.began = time.perf_counter()

    def on_train_end(self, args, state, control, **kwargs):
        self.seconds = time.perf_counter() - self.began


def compute_metrics(prediction):
    logits, labels = torch.from_numpy(prediction.predictions), torch.from_numpy(prediction.label_ids)
    return {
        "accuracy": multiclass_accuracy(logits, labels, len(FAULTS), average="micro").item(),
        "macro_f1": multiclass_f1_score(logits, labels, len(FAULTS), average="macro").item(),
    }


def main():
    set_seed(17)
    train_set = TensionLogs(TRAIN_LOGS, seed=1)
    eval_set = TensionLogs(EVAL_LOGS, seed=2)
    model = StrandTransformer()
    arguments = TrainingArguments(
        output_dir="ropewalk",
        num_train_epochs=2,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=16,
        learning_rate=1e-3,
        warmup_steps=40,
        weight_decay=0.01,
        lr_scheduler_type="cosine",
        eval_strategy="epoch",
        save_strategy="no",
        logging_steps=50,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        remove_unused_columns=False,
        label_names=["labels"],
        seed=17,
    )
    watch = Stopwatch()
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=train_set,
        eval_dataset=eval_set,
        data_collator=collate,
        compute_metrics=compute_metrics,
        callbacks=[watch],
    )
    trainer.train()
    torch.save(model.state_dict(), "ropewalk.pt")
    steps = trainer.state.global_step
    print(f"trained {steps} steps on {len(train_set)} logs")
    print(f"{steps * arguments.per_device_train_batch_size / watch.seconds:.1f} logs/s")


if __name__ == "__main__":
    main()
