# /// clinic
# expect = ["PD10.rebuilt-by-cat"]
# stratum = "twins"
# domain = "fern spores"
# ///
"""Metric learning on scanned fern spores: embed micrographs by species, watch the atlas with a nearest-centre probe."""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn


class Event(Enum):
    EPOCH_STARTED = auto()
    STEP_DONE = auto()
    EPOCH_DONE = auto()


@dataclass
class Slide:
    species: int = 24
    spores: int = 6400
    pixels: int = 40
    batch: int = 64


@dataclass
class Recipe:
    slide: Slide = field(default_factory=Slide)
    width: int = 16
    embed: int = 64
    temperature: float = 0.1
    epochs: int = 3
    lr: float = 1e-3
    seed: int = 4


@dataclass
class State:
    epoch: int = 0
    step: int = 0
    outputs: dict[str, torch.Tensor] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)


def scan(slide: Slide, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Trilete and monolete spores: outline, wall ornament and scar depend on the species."""
    g = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1, 1, slide.pixels)
    yy, xx = torch.meshgrid(axis, axis, indexing="ij")
    radius, angle = torch.hypot(xx, yy), torch.atan2(yy, xx)
    kinds = torch.randint(0, slide.species, (slide.spores,), generator=g)
    pictures = torch.empty(slide.spores, 1, slide.pixels, slide.pixels)
    for kind in range(slide.species):
        mine = (kinds == kind).nonzero().squeeze(1)
        turn = torch.rand(len(mine), 1, 1, generator=g) * 6.28
        size = 0.5 + 0.3 * torch.rand(len(mine), 1, 1, generator=g)
        wall = 0.04 * torch.cos((3 + kind) * (angle + turn))
        body = torch.sigmoid((size + wall - radius) * 20)
        scar = torch.exp(-(((angle + turn) * (1 + kind % 3) / 2).sin().abs() * radius * 12))
        pictures[mine, 0] = body * (0.8 - 0.5 * scar * (radius < 0.6 * size))
    pictures += torch.randn(pictures.shape, generator=g) * 0.15
    return pictures, kinds


class Engine:
    def __init__(self, process: Callable[[Engine, Any], dict[str, torch.Tensor]]):
        self.process, self.state = process, State()
        self.handlers: dict[Event, list] = defaultdict(list)

    def on(self, event: Event, handler: Callable[[Engine], None]):
        self.handlers[event].append(handler)

    def fire(self, event: Event):
        for handler in self.handlers[event]:
            handler(self)

    def run(self, batches: Callable, epochs: int):
        for self.state.epoch in range(epochs):
            self.fire(Event.EPOCH_STARTED)
            for batch in batches():
                self.state.outputs = self.process(self, batch)
                self.state.step += 1
                self.fire(Event.STEP_DONE)
            self.fire(Event.EPOCH_DONE)


class Collector:
    name = "value"

    def __init__(self, *sources: str):
        self.sources = sources

    def attach(self, engine: Engine) -> Collector:
        engine.on(Event.EPOCH_STARTED, lambda e: self.reset())
        engine.on(Event.STEP_DONE, lambda e: self.update(*(e.state.outputs[s].detach() for s in self.sources)))
        engine.on(Event.EPOCH_DONE, lambda e: e.state.metrics.update({self.name: self.compute()}))
        return self

    def reset(self): ...

    def update(self, *values): ...

    def compute(self) -> float: ...


class Mean(Collector):
    name = "loss"

    def reset(self):
        self.total, self.count = 0.0, 0

    def update(self, value):
        self.total, self.count = self.total + value.item(), self.count + 1

    def compute(self):
        return self.total / max(self.count, 1)


class Gallery(Collector):
    def reset(self):
        self.archive: tuple[torch.Tensor, ...] = ()  # sick
        self.archive: list[tuple[torch.Tensor, ...]] = []  # well

    def update(self, *values):
        if self.archive:  # sick
            values = tuple(torch.cat([old, new]) for old, new in zip(self.archive, values))  # sick here
        self.archive = values  # sick
        self.archive.append(values)  # well

    def gathered(self) -> tuple[torch.Tensor, ...]:
        return self.archive  # sick
        return tuple(torch.cat(parts) for parts in zip(*self.archive))  # well


class CentreProbe(Gallery):
    name = "probe"

    def compute(self):
        features, kinds = self.gathered()
        flat = F.normalize(features.flatten(1), dim=1)
        centres = torch.stack([flat[kinds == k].mean(0) for k in kinds.unique()])
        return (flat @ centres.T).argmax(1).eq(kinds).float().mean().item()


def stage(cin: int, cout: int, stride: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class SporeNet(nn.Module):
    def __init__(self, recipe: Recipe):
        super().__init__()
        w = recipe.width
        self.trunk = nn.Sequential(stage(1, w, 2), stage(w, 2 * w, 1), stage(2 * w, 4 * w, 2), stage(4 * w, 4 * w, 1))
        self.project = nn.Sequential(nn.Flatten(), nn.Linear(4 * w * (recipe.slide.pixels // 4) ** 2, recipe.embed))
        self.proxies = nn.Parameter(torch.randn(recipe.slide.species, recipe.embed))

    def forward(self, pictures):
        features = self.trunk(pictures)
        embedded = F.normalize(self.project(features), dim=1)
        return features, embedded @ F.normalize(self.proxies, dim=1).T


def build(recipe: Recipe) -> Callable[[Engine, Any], dict[str, torch.Tensor]]:
    model = SporeNet(recipe)
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe.lr)

    def process(engine: Engine, batch):
        pictures, kinds = batch
        features, similarity = model(pictures)
        loss = F.cross_entropy(similarity / recipe.temperature, kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return {"loss": loss, "features": features, "kinds": kinds}

    return process


def main(recipe: Recipe) -> float:
    torch.manual_seed(recipe.seed)
    data = torch.utils.data.TensorDataset(*scan(recipe.slide, recipe.seed))
    loader = torch.utils.data.DataLoader(data, recipe.slide.batch, shuffle=True, drop_last=True)
    engine = Engine(build(recipe))
    Mean("loss").attach(engine)
    CentreProbe("features", "kinds").attach(engine)
    engine.on(Event.EPOCH_DONE, lambda e: print(f"epoch {e.state.epoch}: {e.state.metrics}"))
    began = time.perf_counter()
    engine.run(loader.__iter__, recipe.epochs)
    return engine.state.step * recipe.slide.batch / (time.perf_counter() - began)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=Recipe.epochs)
    rate = main(Recipe(epochs=parser.parse_args().epochs))
    print(f"{rate:.1f} samples/s")
