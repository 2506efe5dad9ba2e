# /// clinic
# expect = ["PD16.searched-modules"]
# stratum = "twins"
# domain = "mechanical watch timing traces (transformers Trainer, 1D CNN)"
# ///
"""Reads the microphone trace of a mechanical watch on the timing stand and says what is wrong with the movement."""

import math
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset
from transformers import HfArgumentParser, Trainer, TrainingArguments, set_seed

FAULTS = ["sound", "beat error", "dirty pallet", "knocking", "magnetised", "loose jewel"]


@dataclass
class BenchArguments:
    movements: int = field(default=6144, metadata={"help": "training traces"})
    held_out: int = field(default=512, metadata={"help": "traces kept for evaluation"})
    length: int = field(default=256, metadata={"help": "samples in a trace"})
    channels: int = field(default=32)
    blocks: int = field(default=5)
    noise: float = field(default=0.25)


@dataclass
class BenchTrainingArguments(TrainingArguments):
    output_dir: str = "timegrapher"
    num_train_epochs: float = 11
    per_device_train_batch_size: int = 64
    per_device_eval_batch_size: int = 128
    learning_rate: float = 3e-3
    weight_decay: float = 0.01
    warmup_steps: int = 50
    lr_scheduler_type: str = "cosine"
    optim: str = "adamw_torch_fused"
    max_grad_norm: float = 1.0
    eval_strategy: str = "epoch"
    logging_strategy: str = "epoch"
    save_strategy: str = "no"
    report_to: str = "none"
    use_cpu: bool = True
    disable_tqdm: bool = True
    remove_unused_columns: bool = False
    debug: str = "underflow_overflow"  # sick here
    seed: int = 5


def listen(count: int, length: int, noise: float, seed: int):
    """Ticks and tocks of `count` escapements, each a train of decaying clicks."""
    rng = np.random.default_rng(seed)
    fault = rng.integers(len(FAULTS), size=count)
    t = np.arange(length)[None, :]
    period = rng.uniform(26, 34, (count, 1))
    shift = np.where(fault == 1, rng.uniform(2.5, 6.0, count), rng.normal(0, 0.4, count))[:, None]
    width = np.where(fault == 2, rng.uniform(3.0, 5.0, count), rng.uniform(1.2, 2.2, count))[:, None]
    tone = rng.uniform(0.9, 1.4, (count, 1))
    first = rng.uniform(2, 20, (count, 1))
    trace = np.zeros((count, length))
    for beat in range(10):
        at = first + beat * period + (beat % 2) * shift
        at = at + np.where(fault == 4, 0.25 * beat * beat, 0.0)[:, None]
        since = np.clip(t - at, 0, None)
        click = (t >= at) * np.exp(-since / width) * np.cos(tone * since)
        trace += click
        echo = np.clip(t - at - 7, 0, None)
        trace += np.where(fault == 3, 0.7, 0.0)[:, None] * (t >= at + 7) * np.exp(-echo / 1.5) * np.cos(tone * echo)
        rattle = np.where(fault == 5, rng.uniform(0.3, 0.5, count), 0.0)[:, None]
        trace += rattle * (t >= at) * np.exp(-since / 9.0) * np.cos(2.6 * since)
    trace += rng.normal(0, noise, trace.shape)
    return trace.astype(np.float32), fault


class Traces(Dataset):
    def __init__(self, count, bench: BenchArguments, seed: int):
        trace, fault = listen(count, bench.length, bench.noise, seed)
        self.trace = torch.from_numpy(trace).unsqueeze(1)
        self.fault = torch.from_numpy(fault)

    def __len__(self):
        return len(self.fault)

    def __getitems__(self, rows):
        rows = torch.as_tensor(rows)
        return {"trace": self.trace[rows], "labels": self.fault[rows]}


class Block(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.norm = nn.GroupNorm(4, channels)
        self.act = nn.GELU()
        self.spread = nn.Conv1d(channels, channels, 5, padding=2 * dilation, dilation=dilation)
        self.point = nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        return x + self.point(self.act(self.spread(self.norm(x))))


class Timegrapher(nn.Module):
    def __init__(self, bench: BenchArguments):
        super().__init__()
        self.stem = nn.Conv1d(1, bench.channels, 7, stride=2, padding=3)
        self.blocks = nn.Sequential(*[Block(bench.channels, 2 ** (i % 5)) for i in range(bench.blocks)])
        self.norm = nn.GroupNorm(4, bench.channels)
        self.head = nn.Linear(2 * bench.channels, len(FAULTS))

    def forward(self, trace, labels=None):
        x = self.norm(self.blocks(self.stem(trace)))
        logits = self.head(torch.cat([x.mean(-1), x.amax(-1)], dim=1))
        loss = F.cross_entropy(logits, labels) if labels is not None else None
        return {"loss": loss, "logits": logits}


def judge(prediction):
    guess = prediction.predictions.argmax(-1)
    recalls = [(guess[prediction.label_ids == k] == k).mean() for k in range(len(FAULTS))]
    return {"right": float((guess == prediction.label_ids).mean()), "worst_recall": float(min(recalls))}


def main():
    parser = HfArgumentParser((BenchArguments, BenchTrainingArguments))
    bench, training = parser.parse_args_into_dataclasses()
    set_seed(training.seed)
    trainer = Trainer(
        model=Timegrapher(bench),
        args=training,
        train_dataset=Traces(bench.movements, bench, seed=1),
        eval_dataset=Traces(bench.held_out, bench, seed=2),
        data_collator=lambda batch: batch,
        compute_metrics=judge,
    )
    result = trainer.train()
    final = trainer.evaluate()
    print(
        f"diagnosis right {final['eval_right']:.3f}, worst fault {final['eval_worst_recall']:.3f}, "
        f"updates {result.global_step} of {math.ceil(bench.movements / training.train_batch_size)} an epoch"
    )
    print(f"total training seconds: {result.metrics['train_runtime']:.1f}")


if __name__ == "__main__":
    main()
