# /// clinic
# expect = ["PD17.statistics-updates"]
# stratum = "twins"
# domain = "land cover from multispectral satellite tiles with stochastic weight averaging"
# ///
"""Land cover from multispectral satellite tiles (13 bands, 32 x 32 pixels), with stochastic weight averaging.

A trainer with a config: SGD at a constant high rate in the second phase, the weights averaged every few batches.
"""

import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn


CLASSES = ["annual crop", "forest", "heath", "highway", "industry", "pasture", "orchard", "housing", "river", "lake"]


@dataclass
class Config:
    tiles: int = 2048
    held_out: int = 96
    bands: int = 13
    side: int = 32
    width: int = 32
    batch: int = 64
    epochs: int = 14
    swa_start: int = 1
    average_every: int = 16  # batches
    rate: float = 0.05
    swa_rate: float = 0.02
    weight_decay: float = 5e-4
    seed: int = 5


def make_tiles(config):
    """Each class has a spectrum over the bands and a typical grain; tiles are blobs of it with haze on top."""
    generator = torch.Generator().manual_seed(config.seed)
    count = config.tiles + config.held_out
    labels = torch.randint(0, len(CLASSES), (count,), generator=generator)
    spectra = torch.randn(len(CLASSES), config.bands, generator=generator)
    coarse = torch.randn(count, 1, 8, 8, generator=generator)
    texture = F.interpolate(coarse, size=(config.side, config.side), mode="bilinear")
    haze = torch.randn(count, config.bands, config.side, config.side, generator=generator)
    tiles = spectra[labels][:, :, None, None] * (0.06 + 0.1 * texture) + haze
    return (tiles[: config.tiles], labels[: config.tiles]), (tiles[config.tiles :], labels[config.tiles :])


class TileLoader:
    """Shuffled batches of tiles that lie in memory, with flips drawn for each batch."""

    def __init__(self, tiles, labels, batch, augment):
        self.tiles, self.labels, self.batch, self.augment = tiles, labels, batch, augment

    def __len__(self):
        return len(self.tiles) // self.batch

    def __iter__(self):
        order = torch.randperm(len(self.tiles))
        for index in order.split(self.batch)[: len(self)]:
            tiles = self.tiles[index]
            if self.augment and torch.rand(()) < 0.5:
                tiles = tiles.flip(-1)
            yield tiles, self.labels[index]


class Unit(nn.Module):
    """Two 3 x 3 convolutions with batch norm and a shortcut."""

    def __init__(self, inside, outside, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.short = nn.Identity()
        if stride != 1 or inside != outside:
            self.short = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(out)) + self.short(x), inplace=True)


class TileNet(nn.Module):
    def __init__(self, config):
        super().__init__()
        w = config.width
        self.stem = nn.Sequential(
            nn.Conv2d(config.bands, w, 3, 2, 1, bias=False), nn.BatchNorm2d(w), nn.ReLU(inplace=True)
        )
        self.units = nn.Sequential(Unit(w, w, 1), Unit(w, 2 * w, 2), Unit(2 * w, 4 * w, 2))
        self.head = nn.Linear(4 * w, len(CLASSES))

    def forward(self, x):
        return self.head(self.units(self.stem(x)).mean((2, 3)))


class Trainer:
    def __init__(self, config):
        torch.manual_seed(config.seed)
        self.config = config
        train, held_out = make_tiles(config)
        self.train_loader = TileLoader(*train, config.batch, augment=True)
        self.held_tiles, self.held_labels = held_out
        self.model = TileNet(config)
        self.swa_model = AveragedModel(self.model)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=config.rate, momentum=0.9, weight_decay=config.weight_decay
        )
        self.swa_schedule = SWALR(self.optimizer, swa_lr=config.swa_rate, anneal_epochs=2)
        self.began = time.perf_counter()

    def fit(self):
        for epoch in range(self.config.epochs):
            loss = self.train_epoch(averaging=epoch >= self.config.swa_start)
            if epoch >= self.config.swa_start:
                self.swa_schedule.step()
            report = {"loss": loss, "accuracy": self.evaluate(self.model)}
            self.log(epoch, report)
        self.finish()

    def train_epoch(self, averaging):
        self.model.train()
        total = 0.0
        for step, (tiles, labels) in enumerate(self.train_loader, 1):
            loss = F.cross_entropy(self.model(tiles), labels, label_smoothing=0.05)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
            if averaging and step % self.config.average_every == 0:
                self.average()  # here
        return total / len(self.train_loader)

    def average(self):
        """Take the present weights into the average."""
        self.swa_model.update_parameters(self.model)
        update_bn(self.train_loader, self.swa_model)  # sick here

    def finish(self):
        """Batch norm's statistics for the averaged weights, then the figure for the report."""
        update_bn(self.train_loader, self.swa_model)
        print(f"averaged model: held-out accuracy {self.evaluate(self.swa_model):.3f}")

    @torch.no_grad()
    def evaluate(self, model):
        model.eval()
        return (model(self.held_tiles).argmax(1) == self.held_labels).float().mean().item()

    def log(self, epoch, report):
        figures = "  ".join(f"{name} {value:.3f}" for name, value in report.items())
        print(f"epoch {epoch:2d}  {figures}  {time.perf_counter() - self.began:5.1f} s", flush=True)


if __name__ == "__main__":
    Trainer(Config()).fit()
