# /// clinic
# expect = ["PD10.scalar-reads", "PD10.element-loop", "PD10.python-work"]
# stratum = "twins"
# domain = "orbits of bodies"
# ///
"""Learns the energy function of bodies on orbits around a fixed star, from positions, momenta and their rates of change.

The network gives one number per state; its gradient gives the motion (Hamilton's equations). Energy along a known
trajectory should stay constant, and a report says how well it does.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import Protocol
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

log = logging.getLogger("orbit")


@dataclass(frozen=True)
class OrbitConfig:
    trajectories: int = 1024
    moments: int = 32
    time_step: float = 0.05
    substeps: int = 10
    seed: int = 17

    def __post_init__(self) -> None:
        if self.time_step <= 0 or self.substeps < 1:
            raise ValueError("time_step and substeps must be positive")


@dataclass(frozen=True)
class NetworkConfig:
    width: int = 96
    depth: int = 2

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise ValueError("depth must be positive")


@dataclass(frozen=True)
class RunConfig:
    batch_size: int = 64
    steps: int = 6800
    learning_rate: float = 1e-3
    log_every: int = 400
    seed: int = 2
    orbits: OrbitConfig = field(default_factory=OrbitConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)


class Force(Protocol):
    def __call__(self, position: Tensor) -> Tensor: ...


class SoftStar:
    """Attraction of a star, softened near its centre."""

    def __init__(self, softening: float = 0.3) -> None:
        self._square = softening * softening

    def __call__(self, position: Tensor) -> Tensor:
        distance = (position.square().sum(dim=-1, keepdim=True) + self._square).sqrt()
        return -position / distance.pow(3)


class Leapfrog:
    def __init__(self, force: Force, step: float) -> None:
        self._force = force
        self._step = step

    def advance(self, position: Tensor, momentum: Tensor, times: int) -> tuple[Tensor, Tensor]:
        for _ in range(times):
            momentum = momentum + 0.5 * self._step * self._force(position)
            position = position + self._step * momentum
            momentum = momentum + 0.5 * self._step * self._force(position)
        return position, momentum


@dataclass
class OrbitBatch:
    states: Tensor
    rates: Tensor

    def __len__(self) -> int:
        return self.states.shape[0]


class OrbitStore:
    """Trajectories of all bodies, with shape (body, moment, 4)."""

    def __init__(self, config: OrbitConfig) -> None:
        g = torch.Generator().manual_seed(config.seed)
        angle = 6.2832 * torch.rand(config.trajectories, generator=g)
        radius = 0.7 + 0.8 * torch.rand(config.trajectories, generator=g)
        speed = (0.8 + 0.3 * torch.rand(config.trajectories, generator=g)) / radius.sqrt()
        position = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)
        momentum = torch.stack([-speed * angle.sin(), speed * angle.cos()], dim=1)
        force = SoftStar()
        solver = Leapfrog(force, config.time_step / config.substeps)
        states, rates = [], []
        for _ in range(config.moments):
            states.append(torch.cat([position, momentum], dim=1))
            rates.append(torch.cat([momentum, force(position)], dim=1))
            position, momentum = solver.advance(position, momentum, config.substeps)
        self.states = torch.stack(states, dim=1)
        self.rates = torch.stack(rates, dim=1)

    def take(self, rows: Tensor) -> OrbitBatch:
        return OrbitBatch(self.states[rows], self.rates[rows])

    def batches(self, batch_size: int, seed: int) -> Iterator[OrbitBatch]:
        g = torch.Generator().manual_seed(seed)
        count = self.states.shape[0]
        if batch_size > count:
            raise ValueError("batch_size exceeds the number of trajectories")
        while True:
            for rows in torch.randperm(count, generator=g).split(batch_size):
                yield self.take(rows)


class EnergyNetwork(nn.Module):
    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Linear(4, config.width), nn.Tanh()]
        for _ in range(config.depth - 1):
            layers += [nn.Linear(config.width, config.width), nn.Tanh()]
        layers.append(nn.Linear(config.width, 1, bias=False))
        self.layers = nn.Sequential(*layers)

    def forward(self, states: Tensor) -> Tensor:
        return self.layers(states).squeeze(-1)


class Hamilton:
    """Energy and rates of change of states."""

    def __init__(self, energy: EnergyNetwork) -> None:
        self._energy = energy

    def motion(self, states: Tensor) -> tuple[Tensor, Tensor]:
        states = states.detach().requires_grad_()
        energy = self._energy(states)
        (slope,) = torch.autograd.grad(energy.sum(), states, create_graph=True)
        by_position, by_momentum = slope.chunk(2, dim=-1)
        return energy, torch.cat([by_momentum, -by_position], dim=-1)


@dataclass
class Outcome:
    loss: Tensor
    energy: Tensor


class Callback(Protocol):
    def after_step(self, step: int, outcome: Outcome) -> None: ...


class DriftSummary:
    """Mean and largest departure of energies from their value at the start of the trajectory."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.count, self.total, self.largest = 0, 0.0, 0.0

    def add(self, energy: Tensor) -> None:
        drift = (energy - energy[:, :1]).abs().flatten()
        self.count += drift.numel()
        for value in drift:  # sick here
            self.total += value.item()  # sick
            self.largest = max(self.largest, value.item())  # sick
        self.total += drift.sum().item()  # well
        self.largest = max(self.largest, drift.max().item())  # well

    @property
    def mean(self) -> float:
        return self.total / max(self.count, 1)


class ConservationReport:
    """Keeps the summary up to date and writes it now and then."""

    def __init__(self, every: int) -> None:
        if every < 1:
            raise ValueError("every must be positive")
        self._every = every
        self._summary = DriftSummary()

    def after_step(self, step: int, outcome: Outcome) -> None:
        self._summary.add(outcome.energy)
        if step % self._every == 0:
            log.info("step %d: drift mean %.4f, largest %.4f", step, self._summary.mean, self._summary.largest)
            self._summary.reset()


class LossReport:
    def __init__(self, every: int) -> None:
        self._every = every
        self._sum = torch.zeros(())

    def after_step(self, step: int, outcome: Outcome) -> None:
        self._sum += outcome.loss
        if step % self._every == 0:
            log.info("step %d: loss %.5f", step, float(self._sum) / self._every)
            self._sum.zero_()


class Trainer:
    def __init__(self, physics: Hamilton, optimizer: torch.optim.Optimizer, callbacks: Sequence[Callback]) -> None:
        self._physics = physics
        self._optimizer = optimizer
        self._callbacks = list(callbacks)
        self._loss = nn.MSELoss()

    def _step(self, batch: OrbitBatch) -> Outcome:
        energy, rates = self._physics.motion(batch.states)
        loss = self._loss(rates, batch.rates)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        return Outcome(loss.detach(), energy.detach())

    def fit(self, batches: Iterator[OrbitBatch], steps: int) -> tuple[int, float]:
        seen = 0
        began = time.perf_counter()
        for step, batch in zip(range(1, steps + 1), batches):
            outcome = self._step(batch)
            seen += len(batch)
            for callback in self._callbacks:
                callback.after_step(step, outcome)
        return seen, time.perf_counter() - began


def main(config: RunConfig = RunConfig()) -> None:
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    torch.manual_seed(config.seed)
    store = OrbitStore(config.orbits)
    energy = EnergyNetwork(config.network)
    optimizer = torch.optim.Adam(energy.parameters(), lr=config.learning_rate, fused=True)
    callbacks: list[Callback] = [LossReport(config.log_every), ConservationReport(config.log_every)]
    trainer = Trainer(Hamilton(energy), optimizer, callbacks)
    seen, seconds = trainer.fit(store.batches(config.batch_size, config.seed), config.steps)
    print(f"{seen / seconds:.1f} samples/s")


if __name__ == "__main__":
    main()
