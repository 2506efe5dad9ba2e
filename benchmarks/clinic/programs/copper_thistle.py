# /// clinic
# expect = ["PD14.frequent-checkpoints"]
# stratum = "twins"
# domain = "music"
# ///
"""Restores old recordings: a small convolutional autoencoder learns to take hiss and crackle out of mel spectrograms.

After every epoch the restored validation clips are kept on disk, so that they can be turned back into
sound and listened to side by side.
"""

import json
import math
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Config:
    clips: int = 768
    val_clips: int = 640
    mels: int = 64
    frames: int = 96
    width: int = 12
    batch_size: int = 32
    epochs: int = 12
    lr: float = 2e-3
    weight_decay: float = 1e-4
    keep_epochs: int = 3
    seed: int = 11


def make_clips(count, cfg, generator):
    """Clean mel spectrograms of a few held notes with overtones, and the same with hiss and crackle."""
    mel = torch.arange(cfg.mels, dtype=torch.float32).view(1, 1, -1, 1)
    time_axis = torch.arange(cfg.frames, dtype=torch.float32).view(1, 1, 1, -1)
    clean = torch.zeros(count, 1, cfg.mels, cfg.frames)
    for _ in range(4):
        pitch = torch.randint(4, 28, (count, 1, 1, 1), generator=generator).float()
        start = torch.randint(0, cfg.frames - 16, (count, 1, 1, 1), generator=generator).float()
        decay = 8 + 30 * torch.rand(count, 1, 1, 1, generator=generator)
        envelope = torch.exp(-(time_axis - start).clamp_min(0) / decay) * (time_axis >= start)
        for overtone, gain in ((1.0, 1.0), (1.5, 0.6), (2.0, 0.4)):
            clean += gain * torch.exp(-((mel - overtone * pitch) ** 2) / 1.5) * envelope
    hiss = 0.35 * torch.rand(count, 1, cfg.mels, cfg.frames, generator=generator)
    crackle = (torch.rand(count, 1, 1, cfg.frames, generator=generator) < 0.04).float()
    return clean, clean + hiss + 0.8 * crackle


class Restorer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.down1 = nn.Conv2d(1, width, 5, stride=2, padding=2)
        self.down2 = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.middle = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.up2 = nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1)
        self.up1 = nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1)

    def forward(self, noisy):
        first = F.relu(self.down1(noisy))
        second = F.relu(self.down2(first))
        second = second + F.relu(self.middle(second))
        return self.up1(F.relu(self.up2(second)) + first)


class Archive:
    """The folder of one run: its settings, the restored clips of the last epochs, the weights, the scores."""

    def __init__(self, folder, cfg):
        self.folder = Path(folder)
        self.keep = cfg.keep_epochs
        self.written = []
        self.scores = []
        (self.folder / "config.json").write_text(json.dumps(asdict(cfg), indent=2))

    def add_clips(self, epoch, restored, errors):
        path = self.folder / f"restored_{epoch:03d}.npz"
        np.savez_compressed(path, restored=restored.numpy(), errors=errors.numpy())  # sick here
        np.savez(path, restored=restored.numpy(), errors=errors.numpy())  # well
        self.written.append(path)
        while len(self.written) > self.keep:
            self.written.pop(0).unlink()

    def add_scores(self, epoch, train_loss, val_loss):
        self.scores.append({"epoch": epoch, "train": train_loss, "val": val_loss})
        (self.folder / "scores.json").write_text(json.dumps(self.scores, indent=1))

    def add_weights(self, model, optimizer, epoch):
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        torch.save(state, self.folder / "last.pt")


class Trainer:
    def __init__(self, cfg, folder):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        generator = torch.Generator().manual_seed(cfg.seed)
        self.clean, self.noisy = make_clips(cfg.clips, cfg, generator)
        self.val_clean, self.val_noisy = make_clips(cfg.val_clips, cfg, generator)
        self.model = Restorer(cfg.width)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)
        steps = cfg.epochs * (cfg.clips // cfg.batch_size)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, max_lr=cfg.lr, total_steps=steps)
        self.archive = Archive(folder, cfg)

    def train_epoch(self):
        self.model.train()
        total = torch.zeros(())
        batches = torch.randperm(self.cfg.clips).split(self.cfg.batch_size)
        for index in batches:
            loss = F.l1_loss(self.model(self.noisy[index]), self.clean[index])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            total += loss.detach()
        return total.item() / len(batches)

    @torch.no_grad()
    def restore_validation(self):
        self.model.eval()
        restored = torch.cat([self.model(part) for part in self.val_noisy.split(64)])
        errors = (restored - self.val_clean).abs().mean(dim=(1, 2, 3))
        return restored, errors

    def fit(self):
        begun = time.perf_counter()
        for epoch in range(self.cfg.epochs):
            train_loss = self.train_epoch()
            restored, errors = self.restore_validation()
            val_loss = errors.mean().item()
            self.archive.add_clips(epoch, restored, errors)
            self.archive.add_scores(epoch, train_loss, val_loss)
            self.archive.add_weights(self.model, self.optimizer, epoch)
            print(
                f"epoch {epoch}: train {train_loss:.4f}, validation {val_loss:.4f}, {-20 * math.log10(val_loss):.1f} dB"
            )
        return self.cfg.epochs * self.cfg.clips / (time.perf_counter() - begun)


def main():
    folder = tempfile.mkdtemp(prefix="restorer_")
    try:
        rate = Trainer(Config(), folder).fit()
    finally:
        shutil.rmtree(folder)
    print(f"{rate:.1f} samples/s")


if __name__ == "__main__":
    main()
