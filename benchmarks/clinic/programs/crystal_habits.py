# /// clinic
# expect = ["PD02.channels-last"]
# stratum = "twins"
# domain = "snow crystals"
# ///
"""Habit classification of photographed snow crystals (plates, dendrites, columns, ...) with a small mobile network."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from functools import partial
from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

HABITS = ("plate", "sector", "stellar", "dendrite", "fern", "column", "needle", "rimed")
LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
REGISTRY: dict[str, dict[str, Callable]] = {"block": {}, "model": {}, "callback": {}}


def register(kind: str, name: str):
    def wrap(thing):
        REGISTRY[kind][name] = thing
        return thing

    return wrap


@dataclass
class DataConfig:
    crystals: int = 1800
    pixels: int = 64
    batch: int = 32
    val_share: float = 0.1


@dataclass
class Placement:
    device: str = "cpu"
    layout: str = "contiguous"  # sick here
    layout: str = "channels_last"  # well

    @property
    def memory_format(self) -> torch.memory_format:
        return LAYOUTS[self.layout]

    def module(self, m: nn.Module) -> nn.Module:
        return m.to(self.device, memory_format=self.memory_format)

    def images(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(self.device, memory_format=self.memory_format)


@dataclass
class ModelConfig:
    name: str = "flake_net"
    block: str = "separable"
    stem: int = 20
    widths: tuple[int, ...] = (20, 40, 72)
    depths: tuple[int, ...] = (3, 3, 3)


@dataclass
class Config:
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    place: Placement = field(default_factory=Placement)
    callbacks: tuple[str, ...] = ("validate", "report")
    epochs: int = 5
    lr: float = 2e-3
    seed: int = 11


def photograph(cfg: DataConfig, rng: np.random.Generator):
    axis = np.linspace(-1, 1, cfg.pixels, dtype=np.float32)
    yy, xx = np.meshgrid(axis, axis, indexing="ij")
    radius, angle = np.hypot(xx, yy), np.arctan2(yy, xx)
    images = np.empty((cfg.crystals, 1, cfg.pixels, cfg.pixels), dtype=np.float32)
    labels = rng.integers(0, len(HABITS), cfg.crystals)
    for i, habit in enumerate(labels):
        turn, size = rng.uniform(0, 2 * math.pi), rng.uniform(0.45, 0.85)
        if habit in (5, 6):
            along = xx * math.cos(turn) + yy * math.sin(turn)
            across = -xx * math.sin(turn) + yy * math.cos(turn)
            body = (np.abs(along) < size) & (np.abs(across) < (0.25 if habit == 5 else 0.07))
            picture = body.astype(np.float32)
        else:
            arms = np.cos(6 * (angle + turn)) * (0.04 + 0.09 * habit)
            fringe = 0.12 * np.cos((10 + 4 * habit) * radius * math.pi) if habit in (3, 4) else 0.0
            picture = 1.0 / (1.0 + np.exp((radius - size * (0.75 + arms + fringe)) * 25))
        images[i, 0] = picture + rng.normal(0, 0.25 if habit == 7 else 0.12, picture.shape)
    return torch.from_numpy(images), torch.from_numpy(labels)


def build_loaders(cfg: DataConfig, seed: int):
    data = TensorDataset(*photograph(cfg, np.random.default_rng(seed)))
    held = int(cfg.val_share * len(data))
    train, val = random_split(data, [len(data) - held, held], generator=torch.Generator().manual_seed(seed))
    make = partial(DataLoader, batch_size=cfg.batch)
    return make(train, shuffle=True, drop_last=True), make(val)


def conv_bn(cin: int, cout: int, k: int = 1, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(cin, cout, k, stride, k // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(cout), nn.ReLU6(inplace=True))


@register("block", "separable")
class SeparableBlock(nn.Module):
    def __init__(self, cin: int, cout: int, stride: int):
        super().__init__()
        self.skip = stride == 1 and cin == cout
        self.spread = conv_bn(cin, cin, 3, stride, cin)
        self.mix = conv_bn(cin, cout)

    def forward(self, x):
        y = self.mix(self.spread(x))
        return x + y if self.skip else y


@register("model", "flake_net")
def flake_net(cfg: ModelConfig) -> nn.Module:
    block, layers, width = REGISTRY["block"][cfg.block], [conv_bn(1, cfg.stem, 3, 2)], cfg.stem
    for stage, (out, depth) in enumerate(zip(cfg.widths, cfg.depths)):
        for i in range(depth):
            layers.append(block(width, out, 2 if stage and i == 0 else 1))
            width = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, len(HABITS)))


@register("callback", "validate")
def validate(trainer: Trainer):
    trainer.model.eval()
    with torch.inference_mode():
        right = [(trainer.model(x).argmax(1) == y).float().mean() for x, y in map(trainer.prepare, trainer.val)]
    trainer.scores["val_acc"] = torch.stack(right).mean().item()


@register("callback", "report")
def report(trainer: Trainer):
    print(f"epoch {trainer.epoch}: " + ", ".join(f"{k} {v:.4f}" for k, v in sorted(trainer.scores.items())))


class Trainer:
    def __init__(self, cfg: Config):
        torch.manual_seed(cfg.seed)
        self.cfg, self.scores, self.epoch = cfg, {}, 0
        self.train, self.val = build_loaders(cfg.data, cfg.seed)
        self.model = cfg.place.module(REGISTRY["model"][cfg.model.name](cfg.model))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr, weight_decay=0.02)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, cfg.lr, total_steps=cfg.epochs * len(self.train)
        )
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
        self.hooks = [REGISTRY["callback"][name] for name in cfg.callbacks]

    def prepare(self, batch):
        images, labels = batch
        return self.cfg.place.images(images), labels.to(self.cfg.place.device)

    def step(self, images, labels) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(images), labels)
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss.detach()

    def fit(self) -> float:
        seen, began = 0, time.perf_counter()
        for epoch in range(self.cfg.epochs):
            self.epoch = epoch
            self.model.train()
            losses = []
            for images, labels in map(self.prepare, self.train):
                losses.append(self.step(images, labels))
                seen += len(labels)
            self.scores["loss"] = torch.stack(losses).mean().item()
            for hook in self.hooks:
                hook(self)
        return seen / (time.perf_counter() - began)


if __name__ == "__main__":
    rate = Trainer(Config()).fit()
    print(f"{rate:.1f} samples/s")
