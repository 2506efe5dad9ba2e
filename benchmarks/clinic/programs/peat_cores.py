# /// clinic
# expect = ["PD15.longer-rounds"]
# stratum = "twins"
# domain = "peat bog cores"
# ///
"""Contrastive embedding of peat core windows (XRF scan, 12 elements by depth), Lightning.

Two views of the same window of core (jitter, element dropout, a depth shift) should lie near each other.  After each
epoch the alignment and uniformity of the embedding on windows from held-out cores are reported (Wang and Isola, 2020).
"""

import math
import time

import lightning as L
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

ELEMENTS = ["Ti", "Fe", "Ca", "K", "Si", "Br", "S", "Mn", "Sr", "Pb", "Zn", "inc/coh"]
DEPTHS = 96
CROP = 80


def scan_cores(cores, windows, seed):
    """Synthetic scans: slow drift down the core, ash layers, a fen-bog transition; cut into windows of DEPTHS steps."""
    rng = np.random.default_rng(seed)
    length = DEPTHS * windows
    depth = np.arange(length) / length
    out = np.empty((cores, len(ELEMENTS), length), dtype=np.float32)
    for core in out:
        turn = rng.uniform(0.3, 0.8)
        fen = 1.0 / (1.0 + np.exp(-(depth - turn) * 40))
        ash = np.zeros(length)
        for where in rng.integers(0, length, 3 * windows // 2):
            ash += rng.gamma(2.0) * np.exp(-0.5 * ((np.arange(length) - where) / rng.uniform(1.5, 6.0)) ** 2)
        wet = np.cumsum(rng.normal(0, 0.08, length))
        load = rng.normal(0, 1, (len(ELEMENTS), 3)).astype(np.float32)
        core[:] = load @ np.stack([fen, ash, wet]) + rng.normal(0, 0.25, core.shape)
    out -= out.mean(2, keepdims=True)
    out /= out.std(2, keepdims=True) + 1e-6
    cut = out.reshape(cores, len(ELEMENTS), windows, DEPTHS).transpose(0, 2, 1, 3)
    return torch.from_numpy(np.ascontiguousarray(cut.reshape(-1, len(ELEMENTS), DEPTHS)))


def view(x):
    start = int(torch.randint(0, DEPTHS - CROP + 1, ()))
    x = x[..., start : start + CROP]
    gain = 1.0 + 0.15 * torch.randn(len(x), x.shape[1], 1)
    keep = (torch.rand(len(x), x.shape[1], 1) > 0.15).float()
    return x * gain * keep + 0.1 * torch.randn_like(x)


class Residual(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(width, width, 5, padding=2 * dilation, dilation=dilation),
            nn.GroupNorm(8, width),
            nn.GELU(),
            nn.Conv1d(width, width, 1),
        )

    def forward(self, x):
        return x + self.body(x)


class PeatEncoder(nn.Module):
    def __init__(self, width=40, out=48):
        super().__init__()
        self.stem = nn.Conv1d(len(ELEMENTS), width, 3, padding=1)
        self.blocks = nn.Sequential(Residual(width, 1), Residual(width, 2), Residual(width, 4))
        self.project = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, out))

    def forward(self, x):
        return F.normalize(self.project(self.blocks(self.stem(x)).mean(-1)), dim=-1)


class PeatContrast(L.LightningModule):
    def __init__(self, lr=1e-3, temperature=0.2):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = PeatEncoder()
        self.validation_pairs = []
        self.history = []

    def training_step(self, batch, batch_idx):
        (x,) = batch
        za, zb = self.encoder(view(x)), self.encoder(view(x))
        logits = za @ zb.T / self.hparams.temperature
        target = torch.arange(len(x), device=x.device)
        loss = 0.5 * (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target))
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        (x,) = batch
        self.validation_pairs.append((self.encoder(view(x)), self.encoder(view(x))))  # here

    def on_validation_epoch_end(self):
        za, zb = (torch.cat(side) for side in zip(*self.validation_pairs))  # here
        alignment = (za - zb).norm(dim=1).square().mean()
        uniformity = torch.pdist(za).square().mul(-2).exp().mean().log()
        self.log_dict({"alignment": alignment, "uniformity": uniformity})
        self.history.append((self.current_epoch, float(alignment), float(uniformity)))
        self.validation_pairs.clear()  # well

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-2)
        epochs = self.trainer.max_epochs

        def warm_cosine(epoch):
            if epoch < 3:
                return (epoch + 1) / 3
            return 0.5 * (1 + math.cos(math.pi * (epoch - 3) / max(1, epochs - 3)))

        return [optimizer], [torch.optim.lr_scheduler.LambdaLR(optimizer, warm_cosine)]


class Throughput(L.Callback):
    def __init__(self):
        self.began, self.samples = None, 0

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if self.began is None:
            self.began = time.perf_counter()
        self.samples += len(batch[0])

    def on_train_end(self, trainer, module):
        self.rate = self.samples / (time.perf_counter() - self.began)


def main():
    L.seed_everything(1921)
    train = DataLoader(TensorDataset(scan_cores(20, 32, seed=1)), batch_size=128, shuffle=True, drop_last=True)
    held = DataLoader(TensorDataset(scan_cores(16, 32, seed=2)), batch_size=128)
    model, meter = PeatContrast(), Throughput()
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=35,
        callbacks=[meter],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        gradient_clip_val=1.0,
    )
    trainer.fit(model, train, held)
    for epoch, alignment, uniformity in model.history[::7]:
        print(f"epoch {epoch}: alignment {alignment:.3f}, uniformity {uniformity:.3f}")
    print(f"{meter.rate:.1f} samples/s")


if __name__ == "__main__":
    main()
