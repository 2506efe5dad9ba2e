# /// clinic
# expect = ["PD08.unused-gradients", "PD17.gradients-without-optimizer"]
# stratum = "twins"
# domain = "carousel bearings"
# ///
"""Slewing-ring bearing diagnosis on fairground carousels: a small recurrent head on top of the test-rig encoder."""

import time
import warnings
from dataclasses import dataclass, field

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
FAULTS = ("healthy", "inner race", "outer race", "roller", "dry")


@dataclass
class SignalSpec:
    windows: int = 2640
    samples: int = 1024
    rate_hz: float = 2048.0
    axes: int = 3
    batch: int = 48


@dataclass
class GroupSpec:
    lr_scale: float = 1.0
    weight_decay: float = 0.01
    trainable: bool = True


@dataclass
class TuneSpec:
    lr: float = 1.5e-3
    clip: float = 1.0
    epochs: int = 9
    groups: dict[str, GroupSpec] = field(
        default_factory=lambda: {
            "encoder": GroupSpec(
                lr_scale=0.0,  # sick here
                trainable=False,  # well
            ),
            "head": GroupSpec(),
        }
    )


class VibrationData(L.LightningDataModule):
    def __init__(self, spec: SignalSpec, seed: int = 3):
        super().__init__()
        self.spec, self.seed = spec, seed

    def setup(self, stage=None):
        s, rng = self.spec, np.random.default_rng(self.seed)
        t = np.arange(s.samples, dtype=np.float32) / s.rate_hz
        fault = rng.integers(0, len(FAULTS), s.windows)
        wear = rng.uniform(0, 1, s.windows).astype(np.float32)
        spin = rng.uniform(0.9, 1.1, s.windows).astype(np.float32)
        tone = np.array([0.0, 31.0, 23.0, 47.0, 11.0], dtype=np.float32)[fault] * spin
        carrier = np.sin(2 * np.pi * 310 * spin[:, None] * t)
        bursts = np.maximum(np.sin(2 * np.pi * tone[:, None] * t), 0) ** 6
        base = carrier * bursts * (0.4 + wear[:, None]) + 0.3 * np.sin(2 * np.pi * 7 * spin[:, None] * t)
        gains = rng.uniform(0.4, 1.0, (s.windows, s.axes, 1)).astype(np.float32)
        noise = rng.standard_normal((s.windows, s.axes, s.samples), dtype=np.float32) * 0.35
        signal = torch.from_numpy((base[:, None, :] * gains + noise).astype(np.float32))
        full = TensorDataset(signal, torch.from_numpy(fault), torch.from_numpy(wear))
        cut = s.windows // s.batch // 11 * s.batch
        self.held = torch.utils.data.Subset(full, range(cut))
        self.used = torch.utils.data.Subset(full, range(cut, s.windows))

    def train_dataloader(self):
        return DataLoader(self.used, self.spec.batch, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.held, self.spec.batch)


def rig_encoder(axes: int) -> nn.Sequential:
    """Encoder of the test rig, rebuilt from its seed (wavelet-like kernels, unit response)."""
    with torch.random.fork_rng():
        torch.manual_seed(1987)
        stages, width = [], axes
        for out, kernel, stride in ((32, 9, 2), (64, 9, 2), (96, 7, 2), (96, 5, 1)):
            conv = nn.Conv1d(width, out, kernel, stride, kernel // 2)
            nn.init.orthogonal_(conv.weight, gain=1.4)
            stages += [conv, nn.GroupNorm(8, out), nn.GELU()]
            width = out
        return nn.Sequential(*stages)


class RingHead(nn.Module):
    def __init__(self, width: int, hidden: int = 48):
        super().__init__()
        self.squeeze = nn.AvgPool1d(8)
        self.read = nn.GRU(width, hidden, batch_first=True, bidirectional=True)
        self.fault = nn.Linear(2 * hidden, len(FAULTS))
        self.wear = nn.Linear(2 * hidden, 1)

    def forward(self, features):
        states, _ = self.read(self.squeeze(features).transpose(1, 2))
        summary = states.mean(1)
        return self.fault(summary), self.wear(summary).squeeze(-1)


class GroupedTuning:
    """Mixin: optimizer groups by the name of the child module, as described by the tuning spec."""

    tune: TuneSpec

    def grouped_parameters(self):
        for name, group in self.tune.groups.items():
            part = self.get_submodule(name).requires_grad_(group.trainable)
            if group.trainable:
                yield {
                    "name": name,
                    "params": list(part.parameters()),
                    "lr": self.tune.lr * group.lr_scale,
                    "weight_decay": group.weight_decay,
                }

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.grouped_parameters(), lr=self.tune.lr)
        total = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class BearingDoctor(GroupedTuning, L.LightningModule):
    def __init__(self, signal: SignalSpec, tune: TuneSpec):
        super().__init__()
        self.tune = tune
        self.encoder = rig_encoder(signal.axes)
        self.head = RingHead(96)

    def shared_step(self, batch, stage: str):
        signal, fault, wear = batch
        logits, worn = self.head(self.encoder(signal))
        loss = F.cross_entropy(logits, fault) + 0.5 * F.mse_loss(worn, wear)
        self.log(f"{stage}_loss", loss, on_step=False, on_epoch=True)
        self.log(f"{stage}_hit", (logits.argmax(1) == fault).float().mean(), on_step=False, on_epoch=True)
        return loss

    def training_step(self, batch, _):
        return self.shared_step(batch, "train")

    def validation_step(self, batch, _):
        self.shared_step(batch, "val")


class Speedometer(L.Callback):
    def __init__(self):
        self.began, self.seen, self.rate = None, 0, 0.0

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        self.began = self.began or time.perf_counter()
        self.seen += len(batch[0])

    def on_train_epoch_end(self, trainer, module):
        shown = {k: round(v.item(), 3) for k, v in trainer.callback_metrics.items()}
        print(f"epoch {trainer.current_epoch}: {shown}")

    def on_train_end(self, trainer, module):
        self.rate = self.seen / (time.perf_counter() - self.began)


def main():
    L.seed_everything(3)
    signal, tune, meter = SignalSpec(), TuneSpec(), Speedometer()
    trainer = L.Trainer(
        max_epochs=tune.epochs,
        accelerator="cpu",
        gradient_clip_val=tune.clip,
        callbacks=[meter],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(BearingDoctor(signal, tune), datamodule=VibrationData(signal))
    print(f"{meter.rate:.1f} windows/s")


if __name__ == "__main__":
    main()
