# /// clinic
# expect = ["PD03.part-made-again", "PD03.samples-made-again"]
# stratum = "twins"
# domain = "rope bridges"
# ///
"""Momentum contrast on vibration records of rope bridges.

Three accelerometers (deck, left rope, right rope) per record; the encoder is pre-trained on two views of the
spectrogram and learns at the same time to tell how many people were on the bridge.
"""

import copy
import time

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from scipy import signal
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE = 100.0  # Hz
LENGTH = 2048
MAX_LOAD = 6


def simulate_records(count, seed):
    """Crossing of a bridge: sway and bounce modes, footsteps of the walkers, wind."""
    rng = np.random.default_rng(seed)
    t = np.arange(LENGTH) / RATE
    records = np.empty((count, 3, LENGTH), np.float32)
    loads = rng.integers(0, MAX_LOAD, count)
    for i, load in enumerate(loads):
        base = rng.uniform(0.8, 2.5) / np.sqrt(1 + 0.08 * load)
        modes = base * np.array([1.0, 2.1, 3.4, 5.2])
        waves = np.sin(2 * np.pi * modes[:, None] * t + rng.uniform(0, 6.28, (4, 1)))
        mix = rng.normal(0, 1, (3, 4)) / np.arange(1, 5)
        x = mix @ waves
        for _ in range(load):
            pace = rng.uniform(1.5, 2.2)
            steps = np.maximum(0, np.sin(2 * np.pi * pace * t + rng.uniform(0, 6.28))) ** 8
            window = np.exp(-(((t - rng.uniform(2, 18)) / 5) ** 2))
            x += rng.uniform(0.3, 1.0, (3, 1)) * steps * window
        drift = np.cumsum(rng.normal(0, 0.02, (3, LENGTH)), 1)
        records[i] = x + drift + rng.normal(0, 0.3, (3, LENGTH))
    return records, loads


def spectrogram(record):
    """Band-passed log spectrogram with zero mean and unit variance, (3, 64, 61)."""
    sos = signal.butter(4, [0.4, 40.0], btype="bandpass", fs=RATE, output="sos")
    x = signal.sosfiltfilt(sos, signal.detrend(record, axis=-1), axis=-1)
    _, _, power = signal.spectrogram(x, fs=RATE, nperseg=128, noverlap=96, axis=-1)
    power = np.log(power[:, 1:] + 1e-6)
    power = (power - power.mean()) / (power.std() + 1e-6)
    return power.astype(np.float32)


class BridgeViews(Dataset):
    """Two augmented views of each record, and the load."""

    def __init__(self, records, loads, crop=48):
        self.records = records
        self.maps = [spectrogram(r) for r in records]  # well
        self.loads = torch.as_tensor(loads)
        self.crop = crop

    def __len__(self):
        return len(self.records)

    def view(self, spec):
        rng = np.random
        left = rng.randint(0, spec.shape[-1] - self.crop + 1)
        out = spec[:, :, left : left + self.crop].copy()
        band, width = rng.randint(0, 54), rng.randint(2, 10)
        out[:, band : band + width] = 0
        gap, width = rng.randint(0, self.crop - 8), rng.randint(2, 8)
        out[:, :, gap : gap + width] = 0
        if rng.rand() < 0.5:
            out = out[[0, 2, 1]]
        out *= np.float32(rng.uniform(0.8, 1.2))
        return torch.from_numpy(np.ascontiguousarray(out))

    def __getitem__(self, i):
        spec = spectrogram(self.records[i])  # sick here
        spec = self.maps[i]  # well
        return self.view(spec), self.view(spec), self.loads[i]


class Encoder(nn.Module):
    def __init__(self, width=28, dim=64):
        super().__init__()
        layers, inp = [], 3
        for k, out in enumerate((width, 2 * width, 4 * width, 4 * width)):
            layers += [nn.Conv2d(inp, out, 3, 2 if k else (2, 1), 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(True)]
            inp = out
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.project = nn.Sequential(nn.Linear(inp, 2 * inp), nn.ReLU(True), nn.Linear(2 * inp, dim))

    def forward(self, x):
        h = self.features(x)
        return h, F.normalize(self.project(h), dim=-1)


class BridgeMoCo(L.LightningModule):
    def __init__(self, queue=960, dim=64, momentum=0.99, temperature=0.15, lr=1e-3, load_weight=0.3):
        super().__init__()
        self.save_hyperparameters()
        self.query = Encoder(dim=dim)
        self.key = copy.deepcopy(self.query).requires_grad_(False)
        self.head = nn.Linear(112, MAX_LOAD)
        self.register_buffer("queue", F.normalize(torch.randn(queue, dim), dim=-1))
        self.pointer, self.seen, self.began, self.hits = 0, 0, None, []

    def on_train_batch_start(self, batch, batch_idx):
        if self.began is None:
            self.began = time.perf_counter()

    @torch.no_grad()
    def update_key(self):
        m = self.hparams.momentum
        for k, q in zip(self.key.parameters(), self.query.parameters()):
            k.mul_(m).add_(q, alpha=1 - m)

    @torch.no_grad()
    def enqueue(self, keys):
        n = len(keys)
        self.queue[self.pointer : self.pointer + n] = keys
        self.pointer = (self.pointer + n) % len(self.queue)

    def training_step(self, batch, batch_idx):
        first, second, load = batch
        h, q = self.query(first)
        with torch.no_grad():
            self.update_key()
            _, k = self.key(second)
        positive = (q * k).sum(-1, keepdim=True)
        logits = torch.cat([positive, q @ self.queue.clone().T], 1) / self.hparams.temperature
        contrast = F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))
        supervised = F.cross_entropy(self.head(h), load)
        self.enqueue(k)
        self.seen += len(q)
        return contrast + self.hparams.load_weight * supervised

    def validation_step(self, batch, batch_idx):
        first, _, load = batch
        h, _ = self.query(first)
        self.hits.append((self.head(h).argmax(-1) == load).float().mean().item())

    def on_validation_epoch_end(self):
        print(f"epoch {self.current_epoch} load accuracy {np.mean(self.hits):.3f}")
        self.hits.clear()

    def configure_optimizers(self):
        params = [*self.query.parameters(), *self.head.parameters()]
        return torch.optim.AdamW(params, lr=self.hparams.lr, weight_decay=1e-4)

    def on_train_end(self):
        self.rate = self.seen / (time.perf_counter() - self.began)


def main():
    L.seed_everything(3, verbose=False)
    records, loads = simulate_records(2048, seed=3)
    train = BridgeViews(records[:1792], loads[:1792])
    held_out = BridgeViews(records[1792:], loads[1792:])
    model = BridgeMoCo()
    trainer = L.Trainer(
        max_epochs=3,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(
        model,
        DataLoader(train, batch_size=24, shuffle=True, drop_last=True),
        DataLoader(held_out, batch_size=64),
    )
    print(f"{model.rate:.1f} records/s")


if __name__ == "__main__":
    main()
