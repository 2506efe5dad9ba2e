# /// clinic
# expect = ["PD14.frequent-checkpoints"]
# stratum = "twins"
# domain = "tram pantograph sparks"
# ///
"""Classify sparks between tram pantograph and contact wire from the collector current and the place on the line."""

import logging
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.modeling_outputs import SequenceClassifierOutput

logging.basicConfig(level=logging.WARNING)

LABELS = ["quiet", "micro-arc", "arc", "contact loss", "icing"]
CODES = 12288  # codebook of current waveforms
MASTS = 40000  # mast numbers of the whole tram network
WINDOW = 32


class SparkConfig(PretrainedConfig):
    model_type = "spark"

    def __init__(self, width=192, layers=2, heads=6, feedforward=768, dropout=0.1, **kwargs):
        super().__init__(**kwargs)
        self.width = width
        self.layers = layers
        self.heads = heads
        self.feedforward = feedforward
        self.dropout = dropout


class SparkClassifier(PreTrainedModel):
    config_class = SparkConfig

    def __init__(self, config):
        super().__init__(config)
        self.code = nn.Embedding(CODES, config.width)
        self.mast = nn.Embedding(MASTS, config.width)
        self.place = nn.Parameter(0.02 * torch.randn(1, WINDOW, config.width))
        self.speed = nn.Linear(1, config.width)
        layer = nn.TransformerEncoderLayer(
            config.width,
            config.heads,
            config.feedforward,
            config.dropout,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(layer, config.layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(config.width)
        self.classify = nn.Linear(config.width, len(LABELS))
        self.post_init()

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, codes, masts, speed, labels=None):
        x = self.code(codes) + self.mast(masts) + self.speed(speed.unsqueeze(-1)) + self.place
        x = self.norm(self.encoder(x)).mean(dim=1)
        logits = self.classify(x)
        loss = None
        if labels is not None:
            loss = nn.functional.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)


class SparkWindows(Dataset):
    """Windows of 32 periods of the current; sparks shift the codes, some masts spark more often."""

    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        labels = rng.integers(0, len(LABELS), count)
        codes = rng.normal(CODES / 2, CODES / 12, (count, WINDOW))
        burst = rng.random((count, WINDOW)) < 0.25
        codes = np.where(burst, codes + (labels[:, None] - 2) * CODES / 8, codes)
        start = rng.integers(0, MASTS - WINDOW, count)
        start = start - start % len(LABELS) + np.where(rng.random(count) < 0.5, labels, 0)
        self.codes = torch.from_numpy(codes.clip(0, CODES - 1).astype(np.int64))
        self.masts = torch.from_numpy(start[:, None] + np.arange(WINDOW) // 4)
        self.speed = torch.from_numpy(rng.uniform(0, 1, (count, WINDOW)).astype(np.float32))
        self.labels = torch.from_numpy(labels)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {"codes": self.codes[i], "masts": self.masts[i], "speed": self.speed[i], "labels": self.labels[i]}


class Pace(TrainerCallback):
    def __init__(self, batch):
        self.batch = batch
        self.began = None
        self.rate = None

    def on_step_begin(self, args, state, control, **kwargs):
        if self.began is None:
            self.began = time.perf_counter()

    def on_train_end(self, args, state, control, **kwargs):
        self.rate = self.batch * state.global_step / (time.perf_counter() - self.began)


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def main():
    set_seed(41)
    model = SparkClassifier(SparkConfig())
    print(f"{model.num_parameters():,} parameters")
    args = TrainingArguments(
        output_dir="sparks",
        num_train_epochs=2,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=64,
        learning_rate=5e-4,
        warmup_steps=20,
        lr_scheduler_type="cosine",
        weight_decay=0.01,
        eval_strategy="epoch",
        save_steps=4,  # sick here
        save_strategy="epoch",  # well
        save_total_limit=2,
        logging_steps=20,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=41,
    )
    pace = Pace(args.per_device_train_batch_size)
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=SparkWindows(1600, seed=1),
        eval_dataset=SparkWindows(256, seed=2),
        compute_metrics=accuracy,
        callbacks=[pace],
    )
    trainer.train()
    metrics = trainer.evaluate()
    print(f"held-out accuracy {metrics['eval_accuracy']:.3f}")
    print(f"{pace.rate:.1f} samples/s")


if __name__ == "__main__":
    main()
