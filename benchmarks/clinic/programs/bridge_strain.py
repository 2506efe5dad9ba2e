# /// clinic
# expect = ["PD15.repeated-hooks"]
# stratum = "twins"
# domain = "bridge gauges"
# ///
"""Predicts the axle load of a passing truck from twelve strain gauges of a road bridge."""

import logging
import math
import tempfile
import time
import warnings
from collections import defaultdict
from functools import partial

import lightning as L
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")

GAUGES, SAMPLES = 12, 384
BATCH, EPOCHS = 32, 10
TRAIN_EVENTS, VALID_EVENTS = 2400, 320


def passages(count, seed):
    """Gaussian pulses (one per axle) that travel over the gauges, with noise and drift."""
    g = torch.Generator().manual_seed(seed)
    t = torch.linspace(0, 1, SAMPLES)
    where = torch.linspace(0, 0.3, GAUGES).view(1, GAUGES, 1)
    signal = torch.zeros(count, GAUGES, SAMPLES)
    load = torch.zeros(count)
    speed = 0.7 + 0.6 * torch.rand(count, 1, 1, generator=g)
    for axle in range(4):
        weight = torch.rand(count, generator=g) * (torch.rand(count, generator=g) > 0.25)
        arrival = 0.1 + 0.12 * axle + 0.05 * torch.rand(count, 1, 1, generator=g)
        pulse = torch.exp(-(((t - arrival - where / speed) / 0.02) ** 2))
        signal += weight.view(-1, 1, 1) * pulse
        load += weight
    drift = torch.randn(count, GAUGES, 1, generator=g) * torch.sin(2 * math.pi * t) * 0.1
    signal += drift + 0.05 * torch.randn(signal.shape, generator=g)
    return TensorDataset(signal, load)


class Residual(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.a = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)
        self.b = nn.Conv1d(width, width, 1)
        self.norm = nn.GroupNorm(4, width)
        self.act = nn.ReLU()

    def forward(self, x):
        return x + self.b(self.act(self.norm(self.a(x))))


class AxleLoad(L.LightningModule):
    def __init__(self, width=48, depth=4, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.stem = nn.Conv1d(GAUGES, width, 7, stride=2, padding=3)
        self.blocks = nn.Sequential(*[Residual(width, 2**i) for i in range(depth)])
        self.head = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).amax(-1)).squeeze(-1)

    def training_step(self, batch, _):
        signal, load = batch
        loss = F.smooth_l1_loss(self(signal), load)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, _):
        signal, load = batch
        self.log("valid_mae", (self(signal) - load).abs().mean(), prog_bar=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
        return {"optimizer": optimizer, "lr_scheduler": schedule}


class ActivationReport(L.Callback):
    """Tells per layer and epoch how large its outputs are and how many of them are silent."""

    def __init__(self, kinds=(nn.ReLU, nn.GELU), floor=1e-4):
        self.kinds, self.floor = kinds, floor
        self.rows = defaultdict(list)

    def attach(self, module):
        for name, layer in module.named_modules():
            if isinstance(layer, self.kinds):
                layer.register_forward_hook(partial(self.record, name))

    @torch.no_grad()
    def record(self, name, layer, inputs, output):
        if not layer.training:
            return
        std, mean = torch.std_mean(output)
        silent = (output.abs() < self.floor).float().mean()
        self.rows[name].append(torch.stack([mean, std, silent]))

    def on_fit_start(self, trainer, pl_module):  # well
        self.attach(pl_module)  # well

    def on_train_epoch_start(self, trainer, pl_module):
        self.rows.clear()
        self.attach(pl_module)  # sick here

    def on_train_epoch_end(self, trainer, pl_module):
        table = {name: torch.stack(rows).mean(0) for name, rows in self.rows.items()}
        worst = max(table, key=lambda name: table[name][2])
        self.summary = f"most silent layer {worst}: {table[worst][2]:.1%}"


class Pace(L.Callback):
    def __init__(self, skip=5):
        self.skip, self.began, self.steps = skip, None, 0

    def on_train_batch_end(self, trainer, *_):
        self.steps += 1
        if self.steps == self.skip:
            self.began = time.perf_counter()

    def on_train_end(self, trainer, pl_module):
        self.rate = (self.steps - self.skip) / (time.perf_counter() - self.began)


def main():
    L.seed_everything(3, verbose=False)
    train = DataLoader(passages(TRAIN_EVENTS, 0), BATCH, shuffle=True, drop_last=True)
    valid = DataLoader(passages(VALID_EVENTS, 1), 2 * BATCH)
    report, pace = ActivationReport(), Pace()
    trainer = L.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        default_root_dir=tempfile.mkdtemp(prefix="bridge"),
        callbacks=[report, pace],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        gradient_clip_val=1.0,
    )
    model = AxleLoad()
    trainer.fit(model, train, valid)
    print(f"valid mae {trainer.callback_metrics['valid_mae']:.4f}, {report.summary}")
    print(f"{pace.rate:.2f} steps/s")


if __name__ == "__main__":
    main()
