# /// clinic
# expect = ["PD16.anomaly-detection"]
# stratum = "twins"
# domain = "falcon bell telemetry"
# ///
# %% [markdown]
# # Falcon bell telemetry
# The tail-mount logger records three accelerometer axes and the envelope of the bell at 100 Hz. This notebook trains
# a small temporal convolution network which names the behaviour in each window and predicts the wing-beat frequency.

# %%
import math
import time

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

BEHAVIOURS = ["perched", "flapping", "soaring", "stooping", "feeding"]
RATE_HZ = 100
WINDOW = 384

L.seed_everything(23, workers=True)


# %%
def simulate(count, seed):
    """Windows of shape (4, WINDOW) with a behaviour and a beat frequency each."""
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(WINDOW) / RATE_HZ
    kind = torch.randint(0, len(BEHAVIOURS), (count,), generator=g)
    beat_of = torch.tensor([0.6, 5.0, 1.2, 2.0, 3.0])
    spread = torch.tensor([0.3, 0.8, 0.5, 0.8, 1.0])
    beat = (beat_of[kind] + spread[kind] * torch.randn(count, generator=g)).clamp(0.2, 8.0)
    heave_of = torch.tensor([0.02, 0.9, 0.15, 0.4, 0.35])
    phase = torch.rand(count, 1, generator=g) * 2 * math.pi
    stroke = torch.sin(2 * math.pi * beat[:, None] * t + phase)
    heave = heave_of[kind][:, None] * stroke
    surge = 0.5 * heave_of[kind][:, None] * torch.sin(4 * math.pi * beat[:, None] * t + phase)
    sway = 0.1 * torch.randn(count, WINDOW, generator=g)
    dive = (kind == 3)[:, None] * 2.5 * torch.sigmoid((t - 1.5 - torch.rand(count, 1, generator=g)) * 4)
    ring_of = torch.tensor([0.05, 0.8, 0.2, 0.5, 0.6])
    ring = ring_of[kind][:, None] * F.relu(stroke).pow(4) + dive * 0.2
    pecks = (kind == 4)[:, None] * (torch.rand(count, WINDOW, generator=g) < 0.03) * 1.5
    signal = torch.stack([surge + dive, sway + pecks, heave + 1.0, ring + pecks], dim=1)
    signal += 0.12 * torch.randn(count, 4, WINDOW, generator=g)
    return TensorDataset(signal, kind, beat)


class BellData(L.LightningDataModule):
    def __init__(self, train=3520, held_out=480, batch_size=24):
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage=None):
        self.train_set = simulate(self.hparams.train, seed=1)
        self.held_out_set = simulate(self.hparams.held_out, seed=2)
        signal = self.train_set.tensors[0]
        self.centre = signal.mean(dim=(0, 2))
        self.scale = signal.std(dim=(0, 2))

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.hparams.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.held_out_set, batch_size=2 * self.hparams.batch_size)


# %%
class Residual(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.first = nn.Conv1d(width, width, 5, padding=2 * dilation, dilation=dilation)
        self.second = nn.Conv1d(width, width, 1)
        self.norm = nn.GroupNorm(4, width)

    def forward(self, x):
        h = F.gelu(self.norm(self.first(x)))
        return x + self.second(h)


class BellNet(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.stem = nn.Conv1d(4, width, 7, padding=3)
        self.body = nn.Sequential(*[Residual(width, 2**k) for k in range(depth)])
        self.behaviour = nn.Linear(2 * width, len(BEHAVIOURS))
        self.beat = nn.Linear(2 * width, 1)

    def forward(self, signal):
        h = self.body(self.stem(signal))
        pooled = torch.cat([h.mean(-1), h.amax(-1)], dim=-1)
        return self.behaviour(pooled), self.beat(pooled).squeeze(-1)


class BellModule(L.LightningModule):
    def __init__(self, width=40, depth=6, lr=2e-3, beat_weight=0.2):
        super().__init__()
        self.save_hyperparameters()
        self.net = BellNet(width, depth)
        self.accuracy = MulticlassAccuracy(len(BEHAVIOURS))
        self.f1 = MulticlassF1Score(len(BEHAVIOURS), average="macro")

    def standardise(self, signal):
        data = self.trainer.datamodule
        return (signal - data.centre[:, None]) / data.scale[:, None]

    def losses(self, batch):
        signal, kind, beat = batch
        logits, guess = self.net(self.standardise(signal))
        return logits, F.cross_entropy(logits, kind), F.smooth_l1_loss(guess.exp().clamp(max=20), beat)

    def training_step(self, batch, batch_idx):
        _, behaviour, beat = self.losses(batch)
        loss = behaviour + self.hparams.beat_weight * beat
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        logits, behaviour, beat = self.losses(batch)
        self.accuracy(logits, batch[1])
        self.f1(logits, batch[1])
        self.log("val/behaviour", behaviour)
        self.log("val/beat", beat)
        self.log("val/accuracy", self.accuracy)
        self.log("val/f1", self.f1)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-3)
        steps = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=self.hparams.lr, total_steps=int(steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


# %%
class Clock(Callback):
    began = None
    seen = 0
    rate = 0.0

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if self.began is None:
            self.began = time.perf_counter()
        self.seen += len(batch[0])

    def on_train_end(self, trainer, module):
        self.rate = self.seen / (time.perf_counter() - self.began)


# %%
clock = Clock()
trainer = L.Trainer(
    max_epochs=2,
    accelerator="cpu",
    devices=1,
    logger=CSVLogger("bell_logs", name="tcn"),
    log_every_n_steps=20,
    gradient_clip_val=1.0,
    detect_anomaly=True,  # sick here
    callbacks=[clock, LearningRateMonitor(), ModelCheckpoint(monitor="val/f1", mode="max", filename="best")],
    num_sanity_val_steps=0,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(BellModule(), datamodule=BellData())

# %%
scores = {name: round(float(value), 4) for name, value in trainer.callback_metrics.items()}
print(scores)
print(f"{clock.rate:.1f} windows/s")
