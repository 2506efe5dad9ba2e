# /// clinic
# expect = ["PD20.evaluation-too-often"]
# stratum = "twins"
# domain = "piping sounds of queen bees in hive microphone spectrograms"
# ///
# %% [markdown]
# # Piping queens
# Before a swarm leaves, virgin queens *toot* and *quack*. We classify one-second log
# spectrograms from hive microphones into silence / fanning / tooting / quacking / rain.

# %%
import math
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

SOUNDS = ["silence", "fanning", "tooting", "quacking", "rain"]
FRAMES, BINS = 48, 40

CFG = dict(
    epochs=int(os.environ.get("EPOCHS", 9)),
    batch_size=64,
    train_clips=2560,
    val_clips=1280,
    width=96,
    layers=3,
    heads=4,
    lr=1.5e-3,
    eval_interval=40,
)
CFG["eval_interval"] = 5  # sick here


# %%
def record_hive(n, seed):
    """Synthetic log spectrograms [n, FRAMES, BINS] with their sound class."""
    gen = torch.Generator().manual_seed(seed)
    rand = lambda *shape: torch.rand(*shape, generator=gen)
    label = torch.randint(0, len(SOUNDS), (n,), generator=gen)
    t = torch.arange(FRAMES).view(1, FRAMES, 1).float()
    f = torch.arange(BINS).view(1, 1, BINS).float()

    hum = 1.2 * torch.exp(-(((f - 6 - 2 * rand(n, 1, 1)) / 3) ** 2))
    noise = 0.9 * torch.randn(n, FRAMES, BINS, generator=gen)

    pitch = 14 + 8 * rand(n, 1, 1)
    harmonics = sum(torch.exp(-(((f - pitch * k) / 1.2) ** 2)) / k for k in (1, 2))
    start = 8 * rand(n, 1, 1)
    long_then_short = ((t - start) > 0).float() * ((t < start + 14) | (((t - start) % 9) < 5)).float()
    quack_gate = (((t + 10 * rand(n, 1, 1)) % (5 + 2 * rand(n, 1, 1))) < 2.5).float()
    fanning = torch.exp(-(((f - 10 - 4 * rand(n, 1, 1)) / 4) ** 2)) * (1 + 0.3 * torch.sin(t / 3))
    rain = (rand(n, FRAMES, 1) < 0.25).float() * (0.4 + 0.02 * f)

    level = 0.5 + 0.6 * rand(n, 1, 1)
    bank = [torch.zeros(n, FRAMES, BINS), fanning, long_then_short * harmonics, quack_gate * harmonics, rain]
    sound = torch.stack([b.expand(n, FRAMES, BINS) for b in bank])[label, torch.arange(n)]
    clips = hum + noise + 1.3 * level * sound
    return TensorDataset((clips - clips.mean()) / clips.std(), label)


# %%
class PipingFormer(nn.Module):
    def __init__(self, width, layers, heads):
        super().__init__()
        self.embed = nn.Linear(BINS, width)
        self.place = nn.Parameter(0.02 * torch.randn(FRAMES, width))
        block = nn.TransformerEncoderLayer(
            width, heads, dim_feedforward=2 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(block, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.classify = nn.Linear(width, len(SOUNDS))

    def forward(self, clips):
        hidden = self.encoder(self.embed(clips) + self.place)
        return self.classify(hidden.mean(1))


def warmup_cosine(total, warmup):
    def scale(step):
        if step < warmup:
            return (step + 1) / warmup
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))

    return scale


# %%
def validate(accelerator, model, loader, metrics):
    model.eval()
    metrics.reset()
    loss = 0.0
    with torch.no_grad():
        for clips, label in loader:
            logits = model(clips)
            loss += F.cross_entropy(logits, label, reduction="sum").item()
            logits, label = accelerator.gather_for_metrics((logits, label))
            metrics.update(logits, label)
    model.train()
    scores = {k: v.item() for k, v in metrics.compute().items()}
    scores["loss"] = loss / len(loader.dataset)
    return scores


def fit(cfg):
    set_seed(8)
    accelerator = Accelerator(cpu=True)
    train_loader = DataLoader(record_hive(cfg["train_clips"], 1), cfg["batch_size"], shuffle=True, drop_last=True)
    val_loader = DataLoader(record_hive(cfg["val_clips"], 2), cfg["batch_size"])
    model = PipingFormer(cfg["width"], cfg["layers"], cfg["heads"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg["lr"], weight_decay=0.05)
    total = cfg["epochs"] * len(train_loader)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, warmup_cosine(total, 60))
    model, optimizer, schedule, train_loader, val_loader = accelerator.prepare(
        model, optimizer, schedule, train_loader, val_loader
    )
    metrics = MetricCollection(
        {
            "f1": MulticlassF1Score(num_classes=len(SOUNDS), average="macro"),
            "acc": MulticlassAccuracy(num_classes=len(SOUNDS), average="micro"),
        }
    )

    step, history = 0, []
    began = time.perf_counter()
    for epoch in range(cfg["epochs"]):
        for clips, label in train_loader:
            loss = F.cross_entropy(model(clips), label, label_smoothing=0.05)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            step += 1
            if step % cfg["eval_interval"] == 0:
                scores = validate(accelerator, model, val_loader, metrics)  # here
                history.append({"step": step, **scores})
        last = history[-1]
        accelerator.print(
            f"epoch {epoch:2d}  val loss {last['loss']:.3f}  f1 {last['f1']:.3f}  acc {last['acc']:.3f}", flush=True
        )
    seconds = time.perf_counter() - began
    return history, seconds


# %%
history, seconds = fit(CFG)
best = max(history, key=lambda row: row["f1"])
print(f"best macro F1 {best['f1']:.3f} at step {best['step']}")
print(f"trained for {seconds:.2f} seconds")
