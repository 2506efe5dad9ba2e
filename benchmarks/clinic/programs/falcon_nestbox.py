# /// clinic
# expect = ["PD16.anomaly-detection"]
# stratum = "twins"
# domain = "peregrine nest-box webcam feeds"
# ///
"""What happens in the peregrines' nest box? Short webcam clips -> behaviour and number of chicks."""

import time

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy

BEHAVIOURS = ("empty", "incubating", "feeding", "wing flapping")
FRAMES, SIZE = 8, 32


def film(n, seed):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:SIZE, 0:SIZE].astype(np.float32)
    behaviour = rng.integers(len(BEHAVIOURS), size=n)
    chicks = rng.integers(0, 5, size=n)
    chicks[behaviour <= 1] = 0
    light = rng.uniform(0.3, 0.9, size=(n, 1, 1)).astype(np.float32)
    home = rng.uniform(10, 22, size=(n, 2)).astype(np.float32)
    nest = rng.uniform(8, 24, size=(n, 4, 2)).astype(np.float32)
    clips = np.empty((n, FRAMES, SIZE, SIZE), dtype=np.float32)

    def blob(centre, radius):
        dx, dy = xx - centre[:, 0, None, None], yy - centre[:, 1, None, None]
        return np.exp(-(dx**2 + dy**2) / (2 * np.float32(radius) ** 2))

    for f in range(FRAMES):
        frame = np.broadcast_to(light * (0.5 + 0.02 * yy / SIZE), (n, SIZE, SIZE)).copy()
        centre = home + rng.normal(0, 0.3, size=(n, 2)).astype(np.float32)
        centre[behaviour == 2, 1] += 3 * np.sin(f * 1.6)
        centre[behaviour == 3, 0] += 4 * (-1) ** f
        adult = (behaviour > 0).astype(np.float32)[:, None, None]
        frame += 0.5 * adult * blob(centre, 4.0)
        for c in range(4):
            there = (chicks > c).astype(np.float32)[:, None, None]
            frame += 0.35 * there * blob(nest[:, c] + rng.normal(0, 0.5, size=(n, 2)).astype(np.float32), 1.6)
        clips[:, f] = frame
    clips += 0.06 * rng.standard_normal(clips.shape, dtype=np.float32)
    return TensorDataset(
        torch.from_numpy(clips).unsqueeze(2), torch.from_numpy(behaviour), torch.from_numpy(chicks).float()
    )


class NestBoxData(L.LightningDataModule):
    def __init__(self, n_train=1440, n_val=160, batch_size=16):
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage):
        self.train_set = film(self.hparams.n_train, seed=1)
        self.val_set = film(self.hparams.n_val, seed=2)

    def train_dataloader(self):
        return DataLoader(self.train_set, self.hparams.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, 2 * self.hparams.batch_size)


class FrameEncoder(nn.Sequential):
    def __init__(self, dim):
        layers = []
        for a, b in ((1, 16), (16, 32), (32, 48)):
            layers += [nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2)]
        super().__init__(*layers, nn.Flatten(), nn.Linear(48 * (SIZE // 8) ** 2, dim))


class LeakyMemory(nn.Module):
    """A minimal gated unit: one gate, a state that leaks at the rate of the gate."""

    def __init__(self, dim, hidden):
        super().__init__()
        self.hidden = hidden
        self.gate = nn.Linear(dim + hidden, hidden)
        self.content = nn.Linear(dim + hidden, hidden)

    def forward(self, sequence):
        state = sequence.new_zeros(len(sequence), self.hidden)
        for x in sequence.unbind(1):
            gate = torch.sigmoid(self.gate(torch.cat([x, state], 1)))
            content = torch.tanh(self.content(torch.cat([x, gate * state], 1)))
            state = torch.lerp(state, content, gate)
        return state


class NestBoxWatcher(L.LightningModule):
    def __init__(self, dim=64, hidden=96, lr=1e-3, chick_weight=0.2):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = FrameEncoder(dim)
        self.memory = LeakyMemory(dim, hidden)
        self.behaviour = nn.Linear(hidden, len(BEHAVIOURS))
        self.chicks = nn.Linear(hidden, 1)
        self.accuracy = MulticlassAccuracy(len(BEHAVIOURS))

    def forward(self, clips):
        b, t = clips.shape[:2]
        features = self.encoder(clips.flatten(0, 1)).view(b, t, -1)
        state = self.memory(features)
        return self.behaviour(state), self.chicks(state).squeeze(1)

    def shared_step(self, batch):
        clips, behaviour, chicks = batch
        logits, count = self(clips)
        loss = F.cross_entropy(logits, behaviour) + self.hparams.chick_weight * F.mse_loss(count, chicks)
        return loss, logits, count

    def training_step(self, batch, batch_idx):
        loss, _, _ = self.shared_step(batch)
        self.log("train/loss", loss, on_step=False, on_epoch=True, batch_size=len(batch[0]))
        return loss

    def validation_step(self, batch, batch_idx):
        loss, logits, count = self.shared_step(batch)
        self.accuracy(logits, batch[1])
        self.log("val/loss", loss, batch_size=len(batch[0]))
        self.log("val/accuracy", self.accuracy, batch_size=len(batch[0]))
        self.log("val/chick_error", (count - batch[2]).abs().mean(), batch_size=len(batch[0]))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=self.trainer.max_epochs)
        return {"optimizer": optimizer, "lr_scheduler": schedule}


class ClipRate(L.Callback):
    def on_train_start(self, trainer, module):
        self.clips, self.began = 0, time.perf_counter()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.clips += len(batch[0])

    def on_train_epoch_end(self, trainer, module):
        shown = {k: round(v.item(), 3) for k, v in trainer.callback_metrics.items()}
        print(f"epoch {trainer.current_epoch}: {shown}")

    def on_train_end(self, trainer, module):
        self.rate = self.clips / (time.perf_counter() - self.began)


def main():
    L.seed_everything(23)
    rate = ClipRate()
    trainer = L.Trainer(
        max_epochs=3,
        accelerator="cpu",
        devices=1,
        logger=False,
        callbacks=[rate],
        gradient_clip_val=1.0,
        num_sanity_val_steps=0,
        detect_anomaly=True,  # sick here
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir="nestbox",
    )
    trainer.fit(NestBoxWatcher(), datamodule=NestBoxData())
    print(f"{rate.rate:.1f} clips/s")


if __name__ == "__main__":
    main()
