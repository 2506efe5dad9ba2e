# /// clinic
# expect = ["PD20.small-evaluation-batches"]
# stratum = "twins"
# domain = "bridge tolls"
# ///
"""Which crossings of a toll bridge will end in a violation notice?  Fine mesh of lane sensors, transformers Trainer.

A crossing is a short strip of readings (axle loops, height bar, tag reader, camera score) and a few facts about the
lane and the hour.  The classifier says: paid, tag unread, wrong class, or ran the barrier.
"""

import math
import sys
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from transformers import (
    HfArgumentParser,
    PreTrainedConfig,
    PreTrainedModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

OUTCOMES = ["paid", "tag unread", "wrong class", "ran the barrier"]
SENSORS, READINGS = 4, 20
LANES, HOURS = 14, 24


@dataclass
class TollArguments:
    crossings: int = 24_000
    held_out: int = 2_400
    steps: int = 4_500
    batch: int = 32
    eval_batch: int = 8  # sick here
    eval_batch: int = 600  # well
    channels: int = 24
    seed: int = 1931


class TollConfig(PreTrainedConfig):
    model_type = "toll_lanes"

    def __init__(self, channels=24, lane_dim=8, hour_dim=6, hidden=48, **kwargs):
        self.channels, self.lane_dim, self.hour_dim, self.hidden = channels, lane_dim, hour_dim, hidden
        super().__init__(**kwargs)


class TollClassifier(PreTrainedModel):
    """Two convolutions over the strip, embeddings for lane and hour, one hidden layer."""

    config_class = TollConfig

    def __init__(self, config):
        super().__init__(config)
        self.strip = nn.Sequential(
            nn.Conv1d(SENSORS, config.channels, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.Conv1d(config.channels, config.channels, kernel_size=3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.lane = nn.Embedding(LANES, config.lane_dim)
        self.hour = nn.Embedding(HOURS, config.hour_dim)
        wide = 2 * config.channels + config.lane_dim + config.hour_dim
        self.hidden = nn.Linear(wide, config.hidden)
        self.outcome = nn.Linear(config.hidden, len(OUTCOMES))
        self.post_init()

    def forward(self, strip, lane, hour, labels=None):
        trace = self.strip(strip)
        facts = torch.cat([trace.mean(dim=-1), trace.amax(dim=-1), self.lane(lane), self.hour(hour)], dim=-1)
        logits = self.outcome(torch.relu(self.hidden(facts)))
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits}


class Crossings(torch.utils.data.Dataset):
    """Crossings of the bridge, kept as tensors; the loader asks for whole batches."""

    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        lane = rng.integers(0, LANES, count)
        hour = rng.integers(0, HOURS, count)
        axles = rng.integers(2, 6, count)
        time_axis = np.linspace(0, 1, READINGS)[None, :]
        rush = 0.5 + 0.5 * np.cos(2 * math.pi * (hour - 8) / 12)
        speed = rng.gamma(6.0, 0.2, count) * (1.2 - 0.4 * rush)
        tag = rng.normal(1.0 - 0.08 * (lane % 5), 0.35, count)
        declared = axles - (rng.random(count) < 0.12)

        loops = np.cos(math.pi * axles[:, None] * time_axis / np.maximum(speed, 0.3)[:, None])
        height = 0.3 * axles[:, None] + 0.2 * np.sin(math.pi * time_axis)
        reader = tag[:, None] * np.exp(-20 * (time_axis - 0.4) ** 2)
        camera = np.repeat(0.4 * declared[:, None], READINGS, axis=1)
        strip = np.stack([loops, height, reader, camera], axis=1) + rng.normal(0, 0.1, (count, SENSORS, READINGS))

        label = np.zeros(count, dtype=np.int64)
        label[tag < 0.45] = 1
        label[declared != axles] = 2
        label[(speed > 1.7) & (tag < 0.9)] = 3
        self.columns = {
            "strip": torch.tensor(strip, dtype=torch.float32),
            "lane": torch.tensor(lane),
            "hour": torch.tensor(hour),
            "labels": torch.tensor(label),
        }

    def __len__(self):
        return len(self.columns["labels"])

    def __getitem__(self, index):
        return {name: column[index] for name, column in self.columns.items()}

    def __getitems__(self, indices):
        return self[torch.as_tensor(indices)]


class TollClock(TrainerCallback):
    began = None

    def on_step_begin(self, args, state, control, **kwargs):
        if self.began is None:
            self.began = time.perf_counter()

    def on_train_end(self, args, state, control, **kwargs):
        self.took = time.perf_counter() - self.began


def score(prediction):
    said, truth = prediction.predictions.argmax(axis=-1), prediction.label_ids
    result = {"accuracy": float((said == truth).mean())}
    for k, name in enumerate(OUTCOMES[1:], start=1):
        hit = np.sum((said == k) & (truth == k))
        result[f"f1 {name}"] = float(2 * hit / max(1, np.sum(said == k) + np.sum(truth == k)))
    return result


def main():
    (toll,) = HfArgumentParser(TollArguments).parse_args_into_dataclasses(sys.argv[1:])
    set_seed(toll.seed)
    clock = TollClock()
    args = TrainingArguments(
        output_dir="toll_run",
        use_cpu=True,
        max_steps=toll.steps,
        per_device_train_batch_size=toll.batch,
        per_device_eval_batch_size=toll.eval_batch,  # here
        learning_rate=2e-3,
        weight_decay=0.01,
        lr_scheduler_type="cosine",
        warmup_steps=200,
        eval_strategy="steps",
        eval_steps=250,
        logging_steps=250,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        seed=toll.seed,
    )
    trainer = Trainer(
        model=TollClassifier(TollConfig(channels=toll.channels)),
        args=args,
        train_dataset=Crossings(toll.crossings, toll.seed),
        eval_dataset=Crossings(toll.held_out, toll.seed + 1),
        data_collator=lambda batch: batch,
        compute_metrics=score,
        callbacks=[clock],
    )
    trainer.train()
    print(f"{toll.steps / clock.took:.1f} steps/s")


if __name__ == "__main__":
    main()
