# /// clinic
# expect = ["PD14.frequent-checkpoints"]
# stratum = "twins"
# domain = "lichen maps"
# ///
"""Lichen maps: segments survey tiles of a boulder field into rock, moss and four crust-forming species."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

logging.basicConfig(level=logging.INFO, format="%(message)s")
logger = logging.getLogger("lichen")


@dataclass
class Config:
    tile: int = 32
    bands: int = 6
    classes: int = 6
    train_tiles: int = 128
    val_tiles: int = 32
    batch: int = 8
    epochs: int = 15
    width: int = 32
    blocks: int = 28
    lr: float = 1.5e-3
    weight_decay: float = 1e-4
    keep_best: int = 8
    folder: str = "lichen_run"
    seed: int = 29


def survey(count: int, cfg: Config, generator: torch.Generator):
    """Grows round thalli on a noisy rock surface and gives every class its reflectance in six bands."""
    n = cfg.tile
    axis = torch.arange(n).float()
    yy, xx = torch.meshgrid(axis, axis, indexing="ij")
    labels = torch.zeros(count, n, n, dtype=torch.long)
    rough = torch.randn(count, 1, n // 4, n // 4, generator=generator)
    relief = F.interpolate(rough, size=(n, n), mode="bilinear", align_corners=False)
    labels[relief[:, 0] > 0.9] = 1
    for _ in range(7):
        centre = torch.rand(count, 2, 1, 1, generator=generator) * n
        radius = 2 + torch.rand(count, 1, 1, generator=generator) ** 2 * n * 0.25
        species = torch.randint(2, cfg.classes, (count, 1, 1), generator=generator)
        angle = torch.atan2(yy - centre[:, 0], xx - centre[:, 1])
        lobes = 1 + 0.18 * torch.sin(angle * torch.randint(3, 8, (count, 1, 1), generator=generator))
        inside = ((yy - centre[:, 0]) ** 2 + (xx - centre[:, 1]) ** 2).sqrt() < radius * lobes
        labels = torch.where(inside, species.expand_as(labels), labels)
    spectra = torch.rand(cfg.classes, cfg.bands, generator=torch.Generator().manual_seed(cfg.seed))
    image = spectra[labels].permute(0, 3, 1, 2) * (1 + 0.15 * relief)
    image = image + 0.2 * torch.randn(image.shape, generator=generator)
    return image.contiguous(), labels


class CrustBlock(nn.Module):
    """Dilated residual block; the drop rate lets shallow paths learn early."""

    def __init__(self, width: int, dilation: int, drop: float):
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=dilation, dilation=dilation, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.gain = nn.Parameter(torch.full((1, width, 1, 1), 0.1))
        self.drop = nn.Dropout2d(drop)

    def forward(self, x):
        y = self.norm2(self.second(F.relu(self.norm1(self.first(x)))))
        return F.relu(x + self.gain * self.drop(y))


class LichenNet(nn.Module):
    def __init__(self, bands: int, classes: int, width: int, blocks: int):
        super().__init__()
        self.stem = nn.Conv2d(bands, width, 4, stride=2, padding=1)
        rates = [0.1 * i / blocks for i in range(blocks)]
        self.blocks = nn.Sequential(*(CrustBlock(width, 1 + i % 2, rate) for i, rate in enumerate(rates)))
        self.head = nn.ConvTranspose2d(width, classes, 4, stride=2, padding=1)

    def forward(self, x):
        return self.head(self.blocks(F.relu(self.stem(x))))


class Trainer:
    def __init__(self, cfg: Config):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        generator = torch.Generator().manual_seed(cfg.seed + 1)
        self.train_data = survey(cfg.train_tiles, cfg, generator)
        self.val_data = survey(cfg.val_tiles, cfg, generator)
        self.model = LichenNet(cfg.bands, cfg.classes, cfg.width, cfg.blocks)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, cfg.epochs)
        self.folder = Path(cfg.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.scores: dict[Path, float] = {}  # well
        logger.info("%.1f M parameters", sum(p.numel() for p in self.model.parameters()) / 1e6)

    def batches(self):
        images, labels = self.train_data
        for rows in torch.randperm(len(images)).split(self.cfg.batch):
            image, label = images[rows], labels[rows]
            if torch.rand(()) < 0.5:
                image, label = image.flip(-1), label.flip(-1)
            yield image, label

    def train_epoch(self) -> float:
        self.model.train()
        losses = []
        for image, label in self.batches():
            loss = F.cross_entropy(self.model(image), label, label_smoothing=0.02)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.detach())
        self.scheduler.step()
        return torch.stack(losses).mean().item()

    @torch.no_grad()
    def validate(self) -> float:
        self.model.eval()
        classes = self.cfg.classes
        table = torch.zeros(classes, classes)
        for image, label in zip(*(part.split(self.cfg.batch) for part in self.val_data)):
            guess = self.model(image).argmax(dim=1)
            table += torch.bincount((label * classes + guess).flatten(), minlength=classes**2).view(classes, classes)
        overlap = table.diagonal()
        return (overlap / (table.sum(0) + table.sum(1) - overlap).clamp(min=1)).mean().item()

    def save(self, epoch: int, iou: float) -> Path:
        path = self.folder / f"lichen_{epoch:03d}.pt"
        state = {
            "epoch": epoch,
            "iou": iou,
            "config": asdict(self.cfg),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
        }
        torch.save(state, path)
        self.scores[path] = iou  # well
        return path

    def score(self, path: Path) -> float:
        return torch.load(path, map_location="cpu")["iou"]  # sick here
        return self.scores[path]  # well

    def kept(self) -> list[Path]:
        return sorted(self.folder.glob("lichen_*.pt"), key=self.score, reverse=True)  # here

    def prune(self) -> None:
        for path in self.kept()[self.cfg.keep_best :]:
            path.unlink()

    def best(self) -> Path:
        return self.kept()[0]

    def fit(self) -> float:
        began = time.perf_counter()
        for epoch in range(self.cfg.epochs):
            loss = self.train_epoch()
            iou = self.validate()
            self.save(epoch, iou)
            self.prune()
            logger.info("epoch %2d  loss %.3f  iou %.3f  best %s", epoch, loss, iou, self.best().name)
        return time.perf_counter() - began


if __name__ == "__main__":
    config = Config()
    trainer = Trainer(config)
    seconds = trainer.fit()
    rate = config.epochs * config.train_tiles / seconds
    print(f"{rate:.1f} samples/s")
