# /// clinic
# expect = ["PD03"]
# stratum = "twins"
# domain = "bioacoustics (lightning)"
# sizes = {CLIPS = [520, 680], HIDDEN = [176, 224]}
# ///
import logging
import time
import warnings

import lightning as L
import numpy as np
import torch
from scipy import ndimage, signal
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

CLIPS = 600
HIDDEN = 200
SPECIES = 6
RATE = 16000
EPOCHS = 9


def record_colony(n, seed):
    """Short frequency-modulated calls in noise, one species per clip."""
    rng = np.random.default_rng(seed)
    t = np.arange(RATE // 2) / RATE
    kinds = rng.choice(SPECIES, size=n, p=np.array([6, 5, 4, 2, 2, 1]) / 20)
    waves = np.empty((n, len(t)), dtype=np.float32)
    for i, k in enumerate(kinds):
        f0, f1 = 6500 - 600 * k + rng.normal(0, 150), 2500 - 200 * k
        call = signal.chirp(t, f0, t[-1], f1) * (np.sin(2 * np.pi * (6 + k) * t) > 0.3)
        waves[i] = call + rng.normal(0, 0.5, len(t))
    return waves, kinds


def spectral_frames(waves):
    """Log spectrogram with the slow background subtracted."""
    out = []
    for w in waves:
        _, _, s = signal.stft(w, fs=RATE, nperseg=256, noverlap=128)
        mag = np.log1p(np.abs(s[:128]) * 100.0)
        floor = ndimage.uniform_filter1d(mag, size=31, axis=1)
        peak = ndimage.maximum_filter(mag - floor, size=(3, 3))
        out.append(peak.T.astype(np.float32))
    return torch.from_numpy(np.stack(out))


class ColonyData(L.LightningDataModule):
    def __init__(self, batch=24):
        super().__init__()
        self.batch = batch

    def setup(self, stage=None):
        self.waves, kinds = record_colony(CLIPS, 1)
        self.kinds = torch.from_numpy(kinds)
        waves, kinds = record_colony(96, 2)
        self.held = TensorDataset(spectral_frames(waves), torch.from_numpy(kinds))
        self.frames = spectral_frames(self.waves)  # well

    def train_dataloader(self):
        # the balance between rare and common species is relaxed as training goes on
        epoch = self.trainer.current_epoch
        counts = torch.bincount(self.kinds, minlength=SPECIES).clamp(min=1).double()
        weights = counts.pow(-1.0 + epoch / (2 * EPOCHS))[self.kinds]
        frames = spectral_frames(self.waves)  # sick here
        frames = self.frames  # well
        rows = TensorDataset(frames, self.kinds)
        sampler = WeightedRandomSampler(weights, len(rows))
        return DataLoader(rows, batch_size=self.batch, sampler=sampler, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.held, batch_size=48)


class CallNet(L.LightningModule):
    def __init__(self, lr=1e-3):
        super().__init__()
        self.lr = lr
        self.front = nn.Sequential(nn.Linear(128, HIDDEN), nn.LayerNorm(HIDDEN), nn.GELU())
        self.mix = nn.Sequential(
            nn.Conv1d(HIDDEN, HIDDEN, 5, stride=2, padding=2),
            nn.GELU(),
            nn.Conv1d(HIDDEN, HIDDEN, 5, stride=2, padding=2),
            nn.GELU(),
        )
        self.out = nn.Linear(HIDDEN, SPECIES)

    def forward(self, x):
        h = self.mix(self.front(x).transpose(1, 2))
        return self.out(h.amax(-1))

    def training_step(self, batch, _):
        x, y = batch
        loss = F.cross_entropy(self(x), y, label_smoothing=0.05)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, _):
        x, y = batch
        self.log("val_acc", (self(x).argmax(-1) == y).float().mean(), on_epoch=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr, fused=True)


class Speedometer(L.Callback):
    def on_train_epoch_end(self, trainer, module):
        now = time.perf_counter()
        if trainer.current_epoch == 0:
            self.start, self.first = now, trainer.global_step
        self.stop, self.last = now, trainer.global_step
        acc = trainer.callback_metrics.get("val_acc")
        print(f"epoch {trainer.current_epoch}: val_acc {float(acc):.3f}", flush=True)

    def rate(self, batch):
        return (self.last - self.first) * batch / (self.stop - self.start)


def main():
    L.seed_everything(11, verbose=False)
    data, meter = ColonyData(), Speedometer()
    trainer = L.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=EPOCHS,
        callbacks=[meter],
        logger=False,
        reload_dataloaders_every_n_epochs=1,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(CallNet(), datamodule=data)
    print(f"trained at {meter.rate(data.batch):.1f} clips/s")


if __name__ == "__main__":
    main()
