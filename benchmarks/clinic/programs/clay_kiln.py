# /// clinic
# expect = ["PD10.same-each-epoch"]
# stratum = "twins"
# domain = "power of kilns"
# ///
"""Forecasts the power that kilns of a pottery region will draw in the coming day, hour by hour.

Inputs are a summary of the last weeks of each kiln and the hours just passed; a plain network gives the next 24 hours.
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

log = logging.getLogger("kiln")
DAY = 24


@dataclass(frozen=True)
class MeterConfig:
    kilns: int = 40
    days: int = 180
    noise: float = 0.15
    seed: int = 29

    def __post_init__(self) -> None:
        if self.kilns < 1 or self.days < 30:
            raise ValueError("at least one kiln and 30 days are needed")


@dataclass(frozen=True)
class WindowConfig:
    weeks: int = 3
    recent: int = 24
    horizon: int = 24
    stride: int = 6
    quantiles: tuple[float, ...] = (0.1, 0.5, 0.9)

    @property
    def past(self) -> int:
        return self.weeks * 7 * DAY


@dataclass(frozen=True)
class RunConfig:
    batch_size: int = 256
    steps: int = 4600
    width: int = 512
    learning_rate: float = 5e-4
    log_every: int = 250
    seed: int = 13
    meters: MeterConfig = field(default_factory=MeterConfig)
    window: WindowConfig = field(default_factory=WindowConfig)


class MeterSeries:
    """Hourly power of all kilns, with shape (kiln, hour)."""

    def __init__(self, config: MeterConfig) -> None:
        g = torch.Generator().manual_seed(config.seed)
        hours = torch.arange(config.days * DAY)
        phase = 6.2832 * torch.rand(config.kilns, 1, generator=g)
        size = 0.5 + torch.rand(config.kilns, 1, generator=g)
        daily = torch.sin(6.2832 * hours / DAY + phase)
        weekly = torch.cos(6.2832 * hours / (7 * DAY) + 2 * phase)
        drift = torch.randn(config.kilns, hours.numel(), generator=g).cumsum(dim=1) / hours.numel() ** 0.5
        noise = config.noise * torch.randn(config.kilns, hours.numel(), generator=g)
        self.power = size * (1.5 + daily + 0.4 * daily * weekly) + 0.5 * drift + noise


class Recipe(Protocol):
    def __call__(self, past: Tensor) -> Tensor: ...


class LevelRecipe:
    """Mean and spread of the whole past."""

    def __call__(self, past: Tensor) -> Tensor:
        spread, mean = torch.std_mean(past, dim=1)
        return torch.stack([mean, spread], dim=1)


class QuantileRecipe:
    def __init__(self, quantiles: Sequence[float]) -> None:
        if not all(0.0 <= q <= 1.0 for q in quantiles):
            raise ValueError("quantiles lie between 0 and 1")
        self._quantiles = torch.tensor(quantiles)

    def __call__(self, past: Tensor) -> Tensor:
        return torch.quantile(past, self._quantiles, dim=1).T


class ProfileRecipe:
    """The mean day."""

    def __call__(self, past: Tensor) -> Tensor:
        return past.view(past.shape[0], -1, DAY).mean(dim=1)


class RecentRecipe:
    def __init__(self, hours: int) -> None:
        self._hours = hours

    def __call__(self, past: Tensor) -> Tensor:
        return past[:, -self._hours :]


class RecipeBook:
    """Several recipes side by side."""

    def __init__(self, recipes: Sequence[Recipe]) -> None:
        if not recipes:
            raise ValueError("a book needs recipes")
        self._recipes = list(recipes)

    def __call__(self, past: Tensor) -> Tensor:
        return torch.cat([recipe(past) for recipe in self._recipes], dim=1)


class WindowIndex:
    """Which kiln and which hour a sample starts from."""

    def __init__(self, kilns: int, hours: int, config: WindowConfig) -> None:
        starts = torch.arange(0, hours - config.past - config.horizon + 1, config.stride)
        if not starts.numel():
            raise ValueError("the series is shorter than one window")
        self.kiln = torch.arange(kilns).repeat_interleave(starts.numel())
        self.start = starts.repeat(kilns)

    def __len__(self) -> int:
        return self.kiln.numel()


class ForecastSamples:
    """Summary of the past and the coming day, for any rows of the index."""

    def __init__(self, series: MeterSeries, book: RecipeBook, config: WindowConfig) -> None:
        power = series.power
        self.index = WindowIndex(power.shape[0], power.shape[1], config)
        self._past = power.unfold(1, config.past, 1)
        self._future = power[:, config.past :].unfold(1, config.horizon, 1)
        self._book = book
        parts = torch.arange(len(self.index)).split(1024)  # well
        self._table = torch.cat([self._summary(part) for part in parts])  # well

    def _summary(self, rows: Tensor) -> Tensor:
        return self._book(self._past[self.index.kiln[rows], self.index.start[rows]])

    def __len__(self) -> int:
        return len(self.index)

    def take(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        inputs = self._summary(rows)  # sick here
        inputs = self._table[rows]  # well
        return inputs, self._future[self.index.kiln[rows], self.index.start[rows]]


class ShuffledBatches:
    def __init__(self, samples: ForecastSamples, batch_size: int, seed: int) -> None:
        if batch_size > len(samples):
            raise ValueError("batch_size exceeds the number of samples")
        self._samples = samples
        self._batch_size = batch_size
        self._generator = torch.Generator().manual_seed(seed)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            for rows in torch.randperm(len(self._samples), generator=self._generator).split(self._batch_size):
                if rows.numel() == self._batch_size:
                    yield self._samples.take(rows)


class ForecastNetwork(nn.Module):
    def __init__(self, inputs: int, width: int, horizon: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.LayerNorm(inputs),
            nn.Linear(inputs, width),
            nn.ReLU(inplace=True),
            nn.Linear(width, width),
            nn.ReLU(inplace=True),
            nn.Linear(width, width),
            nn.ReLU(inplace=True),
            nn.Linear(width, horizon),
        )

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs)


class Callback(Protocol):
    def after_step(self, step: int, loss: Tensor) -> None: ...


class LossReport:
    def __init__(self, every: int) -> None:
        self._every = every
        self._sum = torch.zeros(())

    def after_step(self, step: int, loss: Tensor) -> None:
        self._sum += loss
        if step % self._every == 0:
            log.info("step %d: loss %.5f", step, float(self._sum) / self._every)
            self._sum.zero_()


class Trainer:
    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, callbacks: Sequence[Callback]) -> None:
        self._model = model
        self._optimizer = optimizer
        self._callbacks = list(callbacks)

    def _step(self, inputs: Tensor, target: Tensor) -> Tensor:
        loss = F.mse_loss(self._model(inputs), target)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        return loss.detach()

    def fit(self, batches: ShuffledBatches, steps: int) -> tuple[int, float]:
        seen = 0
        began = time.perf_counter()
        for step, (inputs, target) in zip(range(1, steps + 1), batches):
            loss = self._step(inputs, target)
            seen += inputs.shape[0]
            for callback in self._callbacks:
                callback.after_step(step, loss)
        return seen, time.perf_counter() - began


def main(config: RunConfig = RunConfig()) -> None:
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    torch.manual_seed(config.seed)
    window = config.window
    book = RecipeBook([LevelRecipe(), QuantileRecipe(window.quantiles), ProfileRecipe(), RecentRecipe(window.recent)])
    samples = ForecastSamples(MeterSeries(config.meters), book, window)
    width_in = 2 + len(window.quantiles) + DAY + window.recent
    model = ForecastNetwork(width_in, config.width, window.horizon)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate, fused=True)
    trainer = Trainer(model, optimizer, [LossReport(config.log_every)])
    seen, seconds = trainer.fit(ShuffledBatches(samples, config.batch_size, config.seed), config.steps)
    print(f"{seen / seconds:.1f} samples/s")


if __name__ == "__main__":
    main()
