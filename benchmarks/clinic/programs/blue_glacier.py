# /// clinic
# expect = ["PD10.enlarged-first"]
# stratum = "twins"
# domain = "aerial pictures of glaciers"
# ///
"""Outlines ice, rock, water and snow on small aerial pictures of glaciers.

An encoder in stages lowers the resolution; a pyramid head joins the stages on one common grid and names a class per pixel.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import Protocol
from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

log = logging.getLogger("glacier")


@dataclass(frozen=True)
class PictureConfig:
    pictures: int = 768
    held_out: int = 64
    size: int = 96
    classes: int = 5
    noise: float = 0.35
    seed: int = 41

    def __post_init__(self) -> None:
        if self.size % 32:
            raise ValueError("size must be a multiple of 32")


@dataclass(frozen=True)
class NetworkConfig:
    stages: tuple[int, ...] = (32, 64, 128, 256, 256)
    lateral: int = 24

    def __post_init__(self) -> None:
        if len(self.stages) < 2:
            raise ValueError("at least two stages are needed")


@dataclass(frozen=True)
class RunConfig:
    batch_size: int = 16
    steps: int = 580
    learning_rate: float = 2e-3
    log_every: int = 50
    seed: int = 8
    pictures: PictureConfig = field(default_factory=PictureConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)


class PictureStore:
    """Pictures with smooth regions; each region has its colour, and each pixel its class."""

    def __init__(self, config: PictureConfig) -> None:
        g = torch.Generator().manual_seed(config.seed)
        count = config.pictures + config.held_out
        coarse = torch.randn(count, config.classes, 6, 6, generator=g)
        fields = F.interpolate(coarse, size=(config.size, config.size), mode="bicubic", align_corners=False)
        self.labels = fields.argmax(dim=1)
        colours = torch.randn(config.classes, 3, generator=g)
        clean = colours[self.labels].permute(0, 3, 1, 2)
        self.pictures = (clean + config.noise * torch.randn(clean.shape, generator=g)).contiguous()
        rows = torch.arange(count)
        self.training, self.held_out = rows[: config.pictures], rows[config.pictures :]

    def take(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        return self.pictures[rows], self.labels[rows]


class ShuffledBatches:
    def __init__(self, store: PictureStore, batch_size: int, seed: int) -> None:
        if batch_size < 1:
            raise ValueError("batch_size must be positive")
        self._store = store
        self._batch_size = batch_size
        self._generator = torch.Generator().manual_seed(seed)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        rows = self._store.training
        while True:
            order = rows[torch.randperm(rows.numel(), generator=self._generator)]
            for part in order.split(self._batch_size):
                if part.numel() == self._batch_size:
                    yield self._store.take(part)


class Stage(nn.Module):
    """Halves the resolution and widens the channels."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(after)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.conv(x)), inplace=True)


class StagedEncoder(nn.Module):
    """Gives the maps of all stages but the first."""

    def __init__(self, stages: Sequence[int]) -> None:
        super().__init__()
        self.stages = nn.ModuleList(Stage(a, b) for a, b in zip((3, *stages), stages))

    def forward(self, x: Tensor) -> list[Tensor]:
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        return features[1:]


class GridResize(nn.Module):
    """Brings a map to the common grid."""

    def forward(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        if tuple(x.shape[-2:]) == grid:
            return x
        return F.interpolate(x, size=grid, mode="bilinear", align_corners=False)


class LateralBranch(nn.Module):
    """One stage's contribution to the common map: same number of channels, same grid."""

    def __init__(self, channels: int, lateral: int) -> None:
        super().__init__()
        self.project = nn.Conv2d(channels, lateral, 1)
        self.resize = GridResize()

    def forward(self, feature: Tensor, grid: tuple[int, int]) -> Tensor:
        return self.project(self.resize(feature, grid))  # sick here
        return self.resize(self.project(feature), grid)  # well


class PyramidHead(nn.Module):
    def __init__(self, stages: Sequence[int], lateral: int, classes: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(LateralBranch(channels, lateral) for channels in stages)
        self.classify = nn.Conv2d(lateral, classes, 1)

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        if len(features) != len(self.branches):
            raise ValueError("one feature map per branch is expected")
        grid = (features[0].shape[-2], features[0].shape[-1])
        joined = self.branches[0](features[0], grid)
        for branch, feature in zip(self.branches[1:], features[1:]):
            joined = joined + branch(feature, grid)
        return self.classify(F.relu(joined, inplace=True))


class OutlineNetwork(nn.Module):
    def __init__(self, config: NetworkConfig, classes: int) -> None:
        super().__init__()
        self.encoder = StagedEncoder(config.stages)
        self.head = PyramidHead(config.stages[1:], config.lateral, classes)
        self.resize = GridResize()

    def forward(self, pictures: Tensor) -> Tensor:
        scores = self.head(self.encoder(pictures))
        return self.resize(scores, (pictures.shape[-2], pictures.shape[-1]))


class Callback(Protocol):
    def after_step(self, step: int, loss: Tensor) -> None: ...


class LossReport:
    def __init__(self, every: int) -> None:
        self._every = every
        self._sum = torch.zeros(())

    def after_step(self, step: int, loss: Tensor) -> None:
        self._sum += loss
        if step % self._every == 0:
            log.info("step %d: loss %.4f", step, float(self._sum) / self._every)
            self._sum.zero_()


class WarmStart:
    """Raises the learning rate linearly during the first steps."""

    def __init__(self, optimizer: torch.optim.Optimizer, steps: int) -> None:
        if steps < 1:
            raise ValueError("steps must be positive")
        self._schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: min(1.0, (done + 1) / steps))

    def after_step(self, step: int, loss: Tensor) -> None:
        self._schedule.step()


class Trainer:
    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, callbacks: Sequence[Callback]) -> None:
        self._model = model
        self._optimizer = optimizer
        self._callbacks = list(callbacks)

    def _step(self, pictures: Tensor, labels: Tensor) -> Tensor:
        loss = F.cross_entropy(self._model(pictures), labels)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        return loss.detach()

    def fit(self, batches: ShuffledBatches, steps: int) -> tuple[int, float]:
        seen = 0
        began = time.perf_counter()
        for step, (pictures, labels) in zip(range(1, steps + 1), batches):
            loss = self._step(pictures, labels)
            seen += pictures.shape[0]
            for callback in self._callbacks:
                callback.after_step(step, loss)
        return seen, time.perf_counter() - began

    @torch.no_grad()
    def accuracy(self, pictures: Tensor, labels: Tensor) -> float:
        self._model.eval()
        return float((self._model(pictures).argmax(dim=1) == labels).float().mean())


def main(config: RunConfig = RunConfig()) -> None:
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    torch.manual_seed(config.seed)
    store = PictureStore(config.pictures)
    model = OutlineNetwork(config.network, config.pictures.classes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, fused=True)
    trainer = Trainer(model, optimizer, [WarmStart(optimizer, 30), LossReport(config.log_every)])
    seen, seconds = trainer.fit(ShuffledBatches(store, config.batch_size, config.seed), config.steps)
    log.info("held-out accuracy %.3f", trainer.accuracy(*store.take(store.held_out)))
    print(f"{seen / seconds:.1f} samples/s")


if __name__ == "__main__":
    main()
