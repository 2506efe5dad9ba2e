# /// clinic
# expect = ["PD03.samples-made-again", "PD03.transform"]
# stratum = "twins"
# domain = "queenless-colony detection from beehive microphones"
# ///
"""Queenless-colony detector for beehive microphones.

Every hive keeps a day of recordings in one .npz shard (mel spectra + whether the queen was present at inspection).
A small residual conv net is trained on clips drawn at random from all shards.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


MELS, FRAMES = 40, 64
HIVES, CLIPS_PER_HIVE = 16, 160
BATCH = 32
EPOCHS = 4


def record_hives(folder: Path, seed: int = 11) -> list[Path]:
    """Simulates a day at the apiary: a hum near 250 Hz, and the raised, warbling pitch of a colony without a queen."""
    rng = np.random.default_rng(seed)
    mel = np.arange(MELS, dtype=np.float32)[None, :, None]
    frame = np.arange(FRAMES, dtype=np.float32)[None, None, :]
    paths = []
    for hive in range(HIVES):
        queenless = rng.random(CLIPS_PER_HIVE) < 0.4
        base = rng.normal(14.0, 1.0) + 2.0 * queenless[:, None, None] + rng.normal(0, 0.8, (CLIPS_PER_HIVE, 1, 1))
        warble = (0.5 + 1.5 * queenless[:, None, None]) * np.sin(frame * rng.uniform(0.2, 0.4))
        hum = np.exp(-((mel - base - warble) ** 2) / 6.0).astype(np.float32)
        spectra = hum + 0.7 * rng.standard_normal((CLIPS_PER_HIVE, MELS, FRAMES), dtype=np.float32)
        path = folder / f"hive_{hive:02d}.npz"
        np.savez(path, spectra=spectra.astype(np.float32), queenless=queenless.astype(np.int64))
        paths.append(path)
    return paths


class HiveClips(Dataset):
    """Clips of all hives in one flat index: (shard, row)."""

    def __init__(self, paths: list[Path]):
        self.shards = []
        self.index = []
        self.labels = []
        for number, path in enumerate(paths):
            archive = np.load(path)
            self.shards.append(archive)  # sick here
            self.shards.append({"spectra": archive["spectra"]})  # well
            labels = archive["queenless"]
            self.labels.extend(labels.tolist())
            self.index.extend((number, row) for row in range(len(labels)))

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, i: int):
        shard, row = self.index[i]
        spectrum = torch.from_numpy(self.shards[shard]["spectra"][row])  # here
        return spectrum.unsqueeze(0), self.labels[i]


class Residual(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)

    def forward(self, x):
        return x + self.conv(F.relu(self.norm(x)))


class HiveNet(nn.Module):
    def __init__(self, width: int = 24):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 5, stride=2, padding=2)
        self.early = nn.Sequential(Residual(width), Residual(width))
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.late = nn.Sequential(Residual(2 * width), Residual(2 * width))
        self.head = nn.Linear(2 * width, 2)

    def forward(self, x):
        x = self.early(self.stem(x))
        x = self.late(self.down(x))
        return self.head(F.relu(x).mean(dim=(2, 3)))


class Trainer:
    def __init__(self, model: nn.Module, loader: DataLoader, epochs: int):
        self.model = model
        self.loader = loader
        self.epochs = epochs
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 4e-3, total_steps=epochs * len(loader))
        self.step = 0
        self.loss_sum = 0.0

    def train_batch(self, spectra, labels) -> float:
        logits = self.model(spectra)
        loss = F.cross_entropy(logits, labels, label_smoothing=0.02)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss.item()

    def fit(self) -> None:
        self.model.train()
        start = time.perf_counter()
        for epoch in range(self.epochs):
            for spectra, labels in self.loader:
                self.loss_sum += self.train_batch(spectra, labels)
                self.step += 1
                if self.step % 40 == 0:
                    rate = self.step / (time.perf_counter() - start)
                    print(
                        f"epoch {epoch} step {self.step} loss {self.loss_sum / 40:.4f} ({rate:.1f} steps/s)", flush=True
                    )
                    self.loss_sum = 0.0


def main() -> None:
    torch.manual_seed(5)
    with tempfile.TemporaryDirectory(prefix="hives_") as folder:
        clips = HiveClips(record_hives(Path(folder)))
        loader = DataLoader(clips, batch_size=BATCH, shuffle=True, drop_last=True)
        print(f"{len(clips)} clips of {HIVES} hives, {len(loader)} batches per epoch")
        Trainer(HiveNet(), loader, EPOCHS).fit()


if __name__ == "__main__":
    main()
