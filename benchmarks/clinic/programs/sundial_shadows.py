# /// clinic
# expect = ["PD02.attention-by-hand"]
# stratum = "twins"
# domain = "sundial shadow logs"
# ///
"""Clock correction from sundial shadow logs.

Every log is one day of a horizontal dial, read by a camera every two minutes: shadow length, shadow angle,
contrast, and so on. A small encoder reads the whole day and estimates three numbers for the dial:
the equation of time, the tilt of the gnomon and the misalignment of the plate.
"""

import math
import time
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import BertConfig, BertModel, HfArgumentParser, Trainer, TrainerCallback, TrainingArguments, set_seed

READINGS = 384
CHANNELS = 6


@dataclass
class DialArguments:
    train_days: int = field(default=480, metadata={"help": "number of logged days to train on"})
    eval_days: int = field(default=64, metadata={"help": "number of logged days held out"})
    epochs: int = field(default=3)
    batch: int = field(default=4)
    width: int = field(default=128)
    layers: int = field(default=2)
    heads: int = field(default=8)
    lr: float = field(default=4e-4)
    seed: int = field(default=11)


def shadow_log(rng):
    """One day at the dial, and what is wrong with it."""
    day = rng.integers(0, 365)
    latitude = math.radians(rng.uniform(35.0, 60.0))
    b = 2.0 * math.pi * (day - 81) / 364.0
    equation = 9.87 * math.sin(2 * b) - 7.53 * math.cos(b) - 1.5 * math.sin(b)
    tilt = rng.normal(0.0, 2.0)
    twist = rng.normal(0.0, 3.0)
    declination = math.radians(23.44) * math.sin(b)

    minutes = (np.arange(READINGS) - READINGS / 2) * 2.0
    hour_angle = np.radians((minutes + equation) / 4.0)
    altitude = np.arcsin(
        np.sin(latitude) * np.sin(declination) + np.cos(latitude) * np.cos(declination) * np.cos(hour_angle)
    )
    up = altitude > 0.05
    angle = np.arctan2(np.sin(latitude + math.radians(tilt)) * np.sin(hour_angle), np.cos(hour_angle))
    angle = angle + math.radians(twist)
    length = np.where(up, np.minimum(1.0 / np.tan(np.maximum(altitude, 0.05)), 12.0), 0.0)

    cloud = np.convolve(rng.normal(size=READINGS + 40), np.ones(41) / 6.4, mode="valid")
    contrast = np.where(up, 1.0 / (1.0 + np.exp(2.0 * cloud)), 0.0)
    noise = rng.normal(0.0, 0.02, size=(2, READINGS)) / (0.2 + contrast)
    columns = [
        np.log1p(length) + noise[0],
        np.sin(angle) + noise[1],
        np.cos(angle),
        contrast,
        np.full(READINGS, latitude),
        minutes / 384.0,
    ]
    signal = np.stack(columns, axis=1).astype(np.float32)
    target = np.array([equation / 10.0, tilt / 2.0, twist / 3.0], dtype=np.float32)
    return torch.from_numpy(signal), torch.from_numpy(target)


class ShadowLogs(Dataset):
    def __init__(self, days, seed):
        rng = np.random.default_rng(seed)
        self.days = [shadow_log(rng) for _ in range(days)]

    def __len__(self):
        return len(self.days)

    def __getitem__(self, index):
        signal, target = self.days[index]
        return {"signal": signal, "labels": target}


class DialReader(nn.Module):
    def __init__(self, args):
        super().__init__()
        config = BertConfig(
            vocab_size=4,
            hidden_size=args.width,
            num_hidden_layers=args.layers,
            num_attention_heads=args.heads,
            intermediate_size=2 * args.width,
            max_position_embeddings=READINGS,
            hidden_dropout_prob=0.05,
            attention_probs_dropout_prob=0.0,
            attn_implementation="eager",  # sick here
        )
        self.project = nn.Sequential(nn.Linear(CHANNELS, args.width), nn.GELU(), nn.Linear(args.width, args.width))
        self.encoder = BertModel(config, add_pooling_layer=False)
        self.head = nn.Sequential(nn.LayerNorm(args.width), nn.Linear(args.width, 3))

    def forward(self, signal, labels=None):
        hidden = self.encoder(inputs_embeds=self.project(signal)).last_hidden_state
        weight = signal[:, :, 3:4] + 0.01
        pooled = (hidden * weight).sum(1) / weight.sum(1)
        logits = self.head(pooled)
        loss = nn.functional.smooth_l1_loss(logits, labels) if labels is not None else None
        return {"loss": loss, "logits": logits}


class RateMeter(TrainerCallback):
    def __init__(self):
        self.first = None

    def on_step_begin(self, args, state, control, **kwargs):
        if self.first is None:
            self.first = time.perf_counter()


def errors(prediction):
    gap = np.abs(prediction.predictions - prediction.label_ids).mean(0)
    return {"minutes": gap[0] * 10.0, "tilt_deg": gap[1] * 2.0, "twist_deg": gap[2] * 3.0}


def main():
    (args,) = HfArgumentParser(DialArguments).parse_args_into_dataclasses()
    set_seed(args.seed)
    train, held_out = ShadowLogs(args.train_days, args.seed), ShadowLogs(args.eval_days, args.seed + 1)
    meter = RateMeter()
    trainer = Trainer(
        model=DialReader(args),
        args=TrainingArguments(
            output_dir="dial",
            num_train_epochs=args.epochs,
            per_device_train_batch_size=args.batch,
            per_device_eval_batch_size=16,
            learning_rate=args.lr,
            lr_scheduler_type="cosine",
            weight_decay=0.01,
            eval_strategy="epoch",
            save_strategy="epoch",
            save_total_limit=1,
            logging_steps=40,
            disable_tqdm=True,
            report_to="none",
            use_cpu=True,
            seed=args.seed,
        ),
        train_dataset=train,
        eval_dataset=held_out,
        compute_metrics=errors,
        callbacks=[meter],
    )
    trainer.train()
    seconds = time.perf_counter() - meter.first
    rate = args.epochs * len(train) / seconds
    print(f"{rate:.1f} samples/s")


if __name__ == "__main__":
    main()
