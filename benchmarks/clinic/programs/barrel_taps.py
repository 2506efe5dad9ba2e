# /// clinic
# expect = ["PD15.growing-hooks"]
# stratum = "twins"
# domain = "cooperage barrels, tap tests"
# ///
"""Cooperage quality control: classify barrels by the sound of a mallet tap.

A microphone at the bung hole records one tap; the module tells a sound barrel from one with a cracked
stave, a loose hoop or a leaking croze.  LightningModule + LightningDataModule, CPU only.
"""

import logging
import time
import warnings

import lightning as L
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy

warnings.filterwarnings("ignore", ".*does not have many workers.*")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

FAULTS = ("sound", "cracked stave", "loose hoop", "leaking croze")
SAMPLES = 512


class TapData(L.LightningDataModule):
    def __init__(self, n_train=2048, n_val=768, batch_size=64):
        super().__init__()
        self.sizes = (n_train, n_val)
        self.batch_size = batch_size

    @staticmethod
    def tap(n, rng):
        fault = rng.integers(0, len(FAULTS), n)
        t = np.arange(SAMPLES)[None] / SAMPLES
        ring = np.zeros((n, SAMPLES))
        for mode, ratio in enumerate((1.0, 1.59, 2.14, 2.65)):
            pitch = 18.0 * ratio * rng.normal(1.0, 0.06, n)
            pitch *= np.where(fault == 1, 1.0 - 0.04 * mode, 1.0)
            damping = rng.uniform(4.0, 7.0, n) * np.where(fault == 3, 1.7, 1.0)
            phase = rng.uniform(0, 2 * np.pi, n)
            ring += np.exp(-damping[:, None] * t) * np.sin(2 * np.pi * pitch[:, None] * t + phase[:, None])
        rattle = rng.normal(size=(n, SAMPLES)) * np.exp(-6.0 * t) * np.where(fault == 2, 0.5, 0.1)[:, None]
        wave = ring + rattle + rng.normal(scale=0.15, size=(n, SAMPLES))
        return torch.from_numpy(wave).float().unsqueeze(1), torch.from_numpy(fault)

    def setup(self, stage=None):
        rng = np.random.default_rng(8)
        self.train_set, self.val_set = (TensorDataset(*self.tap(n, rng)) for n in self.sizes)

    def train_dataloader(self):
        return DataLoader(self.train_set, self.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, 2 * self.batch_size)


class TapClassifier(L.LightningModule):
    def __init__(self, width=24, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        layers, channels = [], 1
        for kernel, stride in ((9, 2), (5, 2), (5, 1), (3, 1)):
            layers += [
                nn.Conv1d(channels, width, kernel, stride, padding=kernel // 2, bias=False),
                nn.BatchNorm1d(width),
                nn.ReLU(),
            ]
            channels, width = width, width + 8
        self.trunk = nn.Sequential(*layers)
        self.head = nn.Linear(2 * channels, len(FAULTS))
        self.loss = nn.CrossEntropyLoss()
        self.accuracy = MulticlassAccuracy(len(FAULTS))

    def forward(self, wave):
        h = self.trunk(wave)
        return self.head(torch.cat([h.mean(2), h.std(2)], dim=1))

    def training_step(self, batch, _):
        wave, fault = batch
        loss = self.loss(self(wave), fault)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, _):
        wave, fault = batch
        self.accuracy.update(self(wave), fault)
        self.log("val_accuracy", self.accuracy)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.trainer.max_epochs)
        return [optimizer], [schedule]


class FiringRates(L.Callback):
    """Share of active units in some ReLUs during training, averaged over an epoch."""

    def __init__(self, layers):
        self.rates = {name: [] for name in layers}

    def _watcher(self, name):
        def watch(module, inputs, output):
            if module.training:
                self.rates[name].append((output.detach() > 0).float().mean())

        return watch

    def on_train_epoch_start(self, trainer, pl_module):  # sick here
        self.listen(pl_module)  # sick here

    def on_fit_start(self, trainer, pl_module):  # well
        self.listen(pl_module)  # well

    def listen(self, pl_module):
        for name in self.rates:
            pl_module.get_submodule(name).register_forward_hook(self._watcher(name))  # here

    def on_train_epoch_end(self, trainer, pl_module):
        shares = []
        for name, values in self.rates.items():
            shares.append(f"{name} {torch.stack(values).mean().item():.1%}")
            values.clear()
        metrics = trainer.callback_metrics
        print(
            f"epoch {trainer.current_epoch:2d}  loss {metrics['train_loss']:.4f}  "
            f"val accuracy {metrics['val_accuracy']:.3f}  firing: {', '.join(shares)}"
        )


class Stopwatch(L.Callback):
    def on_train_start(self, trainer, pl_module):
        self.start = time.perf_counter()

    def on_train_end(self, trainer, pl_module):
        print(f"total training seconds: {time.perf_counter() - self.start:.1f}")


def main():
    L.seed_everything(21, verbose=False)
    trainer = L.Trainer(
        max_epochs=36,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        callbacks=[FiringRates(["trunk.8", "trunk.11"]), Stopwatch()],
    )
    trainer.fit(TapClassifier(), datamodule=TapData())


if __name__ == "__main__":
    main()
