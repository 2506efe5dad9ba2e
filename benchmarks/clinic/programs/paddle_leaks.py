# /// clinic
# expect = ["PD15.growing-work", "PD20.metrics-in-each-step"]
# stratum = "twins"
# domain = "canal lock paddle leak sounds"
# ///
"""Hydrophone monitoring of canal locks: frame-wise tagging of paddle leak sounds (Lightning).

Five tags per frame, not exclusive: ground paddle leak, gate paddle leak, cill weep, culvert hum, boat wash.
"""

import time
import warnings
from typing import ClassVar

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchmetrics.classification import MultilabelAveragePrecision, MultilabelF1Score

warnings.filterwarnings("ignore", category=UserWarning)

TAGS = ["ground_paddle", "gate_paddle", "cill_weep", "culvert_hum", "boat_wash"]
BANDS, FRAMES = 40, 64


class LockRecordings(Dataset):
    """Log-mel clips of about two seconds, each a mixture of the five sources over pump and traffic noise."""

    profiles: ClassVar[dict] = {
        "ground_paddle": (24, 7.0, 0.9),
        "gate_paddle": (31, 4.0, 0.7),
        "cill_weep": (17, 9.0, 0.5),
        "culvert_hum": (4, 2.0, 0.2),
        "boat_wash": (11, 6.0, 1.2),
    }

    def __init__(self, clips, seed):
        rng = np.random.default_rng(seed)
        band = np.arange(BANDS)
        mel = rng.normal(0, 0.6, (clips, BANDS, FRAMES)) + rng.normal(0, 0.4, (clips, BANDS, 1))
        tags = np.zeros((clips, FRAMES, len(TAGS)), np.int64)
        for k, name in enumerate(TAGS):
            centre, width, flutter = self.profiles[name]
            present = rng.random(clips) < 0.45
            start = rng.integers(0, FRAMES - 8, clips)
            length = rng.integers(8, FRAMES, clips)
            frame = np.arange(FRAMES)[None]
            active = (frame >= start[:, None]) & (frame < (start + length)[:, None]) & present[:, None]
            shape = np.exp(-(((band[None] - centre - rng.normal(0, 1.5, (clips, 1))) / width) ** 2))
            level = rng.uniform(0.6, 2.2, (clips, 1)) + flutter * 0.4 * rng.normal(size=(clips, FRAMES))
            mel += shape[:, :, None] * (level * active)[:, None, :]
            tags[:, :, k] = active
        self.mel = torch.from_numpy(mel.astype(np.float32))[:, None]
        self.tags = torch.from_numpy(tags)

    def __len__(self):
        return len(self.mel)

    def __getitem__(self, i):
        return self.mel[i], self.tags[i]


class LeakData(L.LightningDataModule):
    def __init__(self, clips=1_760, held_out=256, batch_size=32):
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage=None):
        self.train_set = LockRecordings(self.hparams.clips, seed=21)
        self.val_set = LockRecordings(self.hparams.held_out, seed=22)

    def train_dataloader(self):
        return DataLoader(self.train_set, self.hparams.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, 64)


class ConvStage(nn.Sequential):
    def __init__(self, cin, cout, pool):
        super().__init__(
            nn.Conv2d(cin, cout, 3, padding=1, bias=False),
            nn.BatchNorm2d(cout),
            nn.ReLU(),
            nn.MaxPool2d((pool, 1)),
            nn.Dropout2d(0.1),
        )


class LeakTagger(L.LightningModule):
    def __init__(self, channels=(16, 32), rnn=48, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.front = nn.Sequential(ConvStage(1, channels[0], 4), ConvStage(channels[0], channels[1], 5))
        self.rnn = nn.GRU(channels[1] * (BANDS // 20), rnn, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * rnn, len(TAGS))
        self.train_ap = MultilabelAveragePrecision(num_labels=len(TAGS))
        self.val_ap = MultilabelAveragePrecision(num_labels=len(TAGS))
        self.val_f1 = MultilabelF1Score(num_labels=len(TAGS))

    def forward(self, mel):
        z = self.front(mel)
        z = z.flatten(1, 2).transpose(1, 2)
        return self.out(self.rnn(z)[0])

    def _loss(self, logits, tags):
        return F.binary_cross_entropy_with_logits(logits, tags.float())

    def training_step(self, batch, index):
        mel, tags = batch
        if self.training:
            mel = mel + 0.3 * torch.randn(len(mel), 1, BANDS, 1)
        logits = self(mel)
        loss = self._loss(logits, tags)
        self.train_ap.update(logits.detach().sigmoid().flatten(0, 1), tags.flatten(0, 1))
        self.log("train/loss", loss)
        self.log("train/ap_so_far", self.train_ap.compute())  # sick here
        return loss

    def on_train_epoch_end(self):
        self.log("train/ap", self.train_ap.compute())
        self.train_ap.reset()

    def validation_step(self, batch, index):
        mel, tags = batch
        logits = self(mel)
        p = logits.sigmoid().flatten(0, 1)
        self.val_ap.update(p, tags.flatten(0, 1))
        self.val_f1.update(p, tags.flatten(0, 1))
        self.log("val/loss", self._loss(logits, tags))

    def on_validation_epoch_end(self):
        values = {"val/ap": self.val_ap.compute(), "val/f1": self.val_f1.compute()}
        self.log_dict(values)
        self.print(f"epoch {self.current_epoch}: " + ", ".join(f"{k} {v:.3f}" for k, v in values.items()))
        self.val_ap.reset()
        self.val_f1.reset()

    def configure_optimizers(self):
        optim = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(optim, self.trainer.estimated_stepping_batches)
        return {"optimizer": optim, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


class Clock(L.Callback):
    start = None

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        self.start = self.start or time.perf_counter()

    def on_train_end(self, trainer, module):
        self.seconds = time.perf_counter() - self.start


def main():
    L.seed_everything(1793, verbose=False)
    clock, data = Clock(), LeakData()
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=5,
        logger=CSVLogger("logs", name="locks"),
        callbacks=[clock],
        log_every_n_steps=10,
        gradient_clip_val=1.0,
        num_sanity_val_steps=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(LeakTagger(), data)
    rate = trainer.global_step * data.hparams.batch_size / clock.seconds
    print(f"{rate:.1f} clips/s")


if __name__ == "__main__":
    main()
