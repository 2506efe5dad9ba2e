# /// clinic
# expect = ["PD16.anomaly-detection"]
# stratum = "twins"
# domain = "elevator doors"
# ///
"""Masked reconstruction of elevator door cycles (motor current, belt speed, position, light curtain).

The encoder feeds the wear score of the maintenance service; this job retrains it on the cycles of the last weeks.
"""

import logging
import math
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback, EarlyStopping, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
log = logging.getLogger("doors")


@dataclass
class Config:
    data_version: str = "doors-2026w47"
    seed: int = 1907
    cycles: int = 1280
    held_out: int = 192
    samples: int = 192
    patch: int = 4
    channels: int = 4
    width: int = 64
    depth: int = 4
    heads: int = 4
    mask_ratio: float = 0.4
    batch_size: int = 24
    epochs: int = 6
    lr: float = 6e-4
    weight_decay: float = 0.02
    warmup: int = 40
    clip: float = 1.0
    ema_decay: float = 0.995
    patience: int = 10
    precision: str = "32-true"
    nan_guard: bool = True  # sick here
    nan_guard: bool = False  # well
    run_dir: str = "runs"


def door_cycles(cfg: Config) -> torch.Tensor:
    """Opening and closing strokes with friction, sill debris and a reopening now and then."""
    rng = np.random.default_rng(cfg.seed)
    n, t = cfg.cycles + cfg.held_out, np.linspace(0.0, 1.0, cfg.samples, dtype=np.float32)
    start, length = rng.uniform(0.02, 0.12, (n, 1)), rng.uniform(0.25, 0.38, (n, 1))
    phase = np.clip((t - start) / length, 0, 1) - np.clip((t - start - length - 0.2) / length, 0, 1)
    position = 0.5 - 0.5 * np.cos(np.pi * phase)
    speed = np.gradient(position, axis=1) * cfg.samples / 4
    friction = rng.gamma(3.0, 0.12, (n, 1))
    debris = rng.uniform(0, 1, (n, 1))
    bump = np.exp(-(((position - debris) / 0.04) ** 2)) * (rng.random((n, 1)) < 0.3)
    current = friction * np.sign(speed) + np.gradient(speed, axis=1) * 3 + bump
    current += 0.05 * rng.normal(size=current.shape)
    curtain = ((rng.random((n, 1)) < 0.2) & (np.abs(t - 0.55) < 0.04)).astype(np.float32)
    return torch.from_numpy(np.stack([current, speed, position, curtain], 1).astype(np.float32))


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, n, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(y.transpose(1, 2).reshape(b, n, w))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class DoorEncoder(L.LightningModule):
    def __init__(self, cfg: Config):
        super().__init__()
        self.save_hyperparameters(asdict(cfg))
        self.cfg = cfg
        size, count = cfg.channels * cfg.patch, cfg.samples // cfg.patch
        self.embed = nn.Linear(size, cfg.width)
        self.mask_token = nn.Parameter(torch.zeros(cfg.width))
        self.place = nn.Parameter(torch.randn(count, cfg.width) * 0.02)
        self.blocks = nn.ModuleList(Block(cfg.width, cfg.heads) for _ in range(cfg.depth))
        self.norm, self.out = nn.LayerNorm(cfg.width), nn.Linear(cfg.width, size)

    def patches(self, x):
        b, c, t = x.shape
        return x.view(b, c, t // self.cfg.patch, self.cfg.patch).transpose(1, 2).flatten(2)

    def shared_step(self, batch):
        target = self.patches(batch[0])
        mask = torch.rand(target.shape[:2]) < self.cfg.mask_ratio
        x = torch.where(mask[..., None], self.mask_token, self.embed(target)) + self.place
        for block in self.blocks:
            x = block(x)
        error = F.smooth_l1_loss(self.out(self.norm(x)), target, reduction="none").mean(-1)
        return (error * mask).sum() / mask.sum().clamp(min=1)

    def training_step(self, batch, index):
        loss = self.shared_step(batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", self.shared_step(batch), batch_size=len(batch[0]))

    def configure_optimizers(self):
        decay = [p for p in self.parameters() if p.ndim > 1]
        rest = [p for p in self.parameters() if p.ndim <= 1]
        groups = [{"params": decay, "weight_decay": self.cfg.weight_decay}, {"params": rest, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=self.cfg.lr, betas=(0.9, 0.95))
        total = self.trainer.estimated_stepping_batches

        def shape(step):
            if step < self.cfg.warmup:
                return (step + 1) / self.cfg.warmup
            return 0.5 + 0.5 * math.cos(math.pi * min(1.0, (step - self.cfg.warmup) / max(1, total - self.cfg.warmup)))

        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, shape)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Ema(Callback):
    def __init__(self, decay: float):
        self.decay, self.shadow = decay, None

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        live = [p.detach() for p in module.parameters()]
        if self.shadow is None:
            self.shadow = [p.clone() for p in live]
        torch._foreach_lerp_(self.shadow, live, 1 - self.decay)

    def on_save_checkpoint(self, trainer, module, checkpoint):
        if self.shadow is not None:
            checkpoint["ema"] = dict(zip([n for n, _ in module.named_parameters()], self.shadow))


class Throughput(Callback):
    began, seen = None, 0

    def on_train_batch_start(self, trainer, module, batch, index):
        self.began = self.began or time.perf_counter()

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        self.seen += len(batch[0])


def main(cfg: Config):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    L.seed_everything(cfg.seed, verbose=False)
    cycles = door_cycles(cfg)
    mean, std = cycles.mean((0, 2), keepdim=True), cycles.std((0, 2), keepdim=True)
    cycles = (cycles - mean) / std
    log.info("data %s: %d cycles", cfg.data_version, len(cycles))
    train = DataLoader(TensorDataset(cycles[: cfg.cycles]), cfg.batch_size, shuffle=True, drop_last=True)
    val = DataLoader(TensorDataset(cycles[cfg.cycles :]), 96)
    meter = Throughput()
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=cfg.epochs,
        precision=cfg.precision,
        gradient_clip_val=cfg.clip,
        detect_anomaly=cfg.nan_guard,
        log_every_n_steps=25,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=CSVLogger(cfg.run_dir, name=cfg.data_version),
        callbacks=[
            Ema(cfg.ema_decay),
            meter,
            LearningRateMonitor("step"),
            EarlyStopping("val_loss", patience=cfg.patience),
            ModelCheckpoint(Path(cfg.run_dir) / "ckpt", monitor="val_loss", save_last=True),
        ],
    )
    trainer.fit(DoorEncoder(cfg), train, val)
    took = time.perf_counter() - meter.began
    log.info("val_loss %.4f after %d steps", trainer.callback_metrics["val_loss"].item(), trainer.global_step)
    rate = meter.seen / took
    print(f"{rate:.1f} cycles/s")


if __name__ == "__main__":
    main(Config())
