# /// clinic
# expect = ["PD19.late-by-turns", "PD19.late-rank", "PD03.uneven-batches"]
# stratum = "twins"
# domain = "delays of trams"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""Estimates the delay of a tram at its terminus from the readings along its journey, with two processes.

Journeys have very different lengths, from a few stops in the centre to lines that cross the whole region.
Start: torchrun --standalone --nproc-per-node 2 train.py
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass, field
from typing import Protocol
from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("tram")


@dataclass(frozen=True)
class JourneyConfig:
    journeys: int = 4096
    channels: int = 8
    shortest: int = 16
    longest: int = 384
    typical: float = 80.0
    spread: float = 0.8
    seed: int = 11

    def __post_init__(self) -> None:
        if not 0 < self.shortest < self.longest:
            raise ValueError("shortest must be positive and below longest")


@dataclass(frozen=True)
class NetworkConfig:
    width: int = 96
    heads: int = 4
    layers: int = 2
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError("width must be a multiple of heads")


@dataclass(frozen=True)
class RunConfig:
    batch_size: int = 32
    steps: int = 320
    learning_rate: float = 6e-4
    log_every: int = 64
    seed: int = 5
    journeys: JourneyConfig = field(default_factory=JourneyConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)


@dataclass(frozen=True)
class Seat:
    """Where this process sits among the others."""

    rank: int
    world: int

    @property
    def leads(self) -> bool:
        return self.rank == 0

    @classmethod
    def take(cls) -> Seat:
        return cls(rank=int(os.environ["RANK"]), world=int(os.environ["WORLD_SIZE"]))


@dataclass
class Batch:
    values: Tensor
    padding: Tensor
    delay: Tensor

    def __len__(self) -> int:
        return self.values.shape[0]


class JourneyStore:
    """All journeys in one padded block, with their lengths beside."""

    def __init__(self, config: JourneyConfig) -> None:
        g = torch.Generator().manual_seed(config.seed)
        raw = config.typical * torch.exp(config.spread * torch.randn(config.journeys, generator=g))
        self.lengths = raw.round().long().clamp(config.shortest, config.longest)
        self.values = torch.randn(config.journeys, config.longest, config.channels, generator=g)
        self.values[..., 0] = self.values[..., 0].cumsum(dim=1) / torch.arange(1, config.longest + 1).sqrt()
        present = (torch.arange(config.longest) < self.lengths.unsqueeze(1)).float()
        signal = torch.tanh(self.values[..., 0]) + 0.5 * self.values[..., 1] * self.values[..., 2]
        self.delay = (signal * present).sum(dim=1) / present.sum(dim=1)
        self.values *= present.unsqueeze(-1)

    def __len__(self) -> int:
        return self.lengths.numel()

    def collate(self, rows: Tensor) -> Batch:
        lengths = self.lengths[rows]
        longest = int(lengths.max())
        padding = torch.arange(longest) >= lengths.unsqueeze(1)
        return Batch(self.values[:, :longest][rows], padding, self.delay[rows])


class Arrangement(Protocol):
    def groups(self, epoch: int) -> Sequence[Tensor]: ...


class LengthBuckets:
    """Groups journeys of similar length, so that little padding is needed; new groups in every epoch."""

    def __init__(self, lengths: Tensor, batch_size: int, seed: int, jitter: float = 4.0) -> None:
        if batch_size < 1:
            raise ValueError("batch_size must be positive")
        self._lengths = lengths.float()
        self._batch_size = batch_size
        self._seed = seed
        self._jitter = jitter

    def groups(self, epoch: int) -> Sequence[Tensor]:
        g = torch.Generator().manual_seed(self._seed + epoch)
        noise = self._jitter * torch.rand(self._lengths.numel(), generator=g)
        order = torch.argsort(self._lengths + noise)
        return [part for part in order.split(self._batch_size) if part.numel() == self._batch_size]


class RankShare:
    """Gives each process its part of the groups, in an order that changes from epoch to epoch."""

    def __init__(self, arrangement: Arrangement, seat: Seat, seed: int) -> None:
        self._arrangement = arrangement
        self._seat = seat
        self._seed = seed

    def of_epoch(self, epoch: int) -> list[Tensor]:
        groups = self._arrangement.groups(epoch)
        each = len(groups) // self._seat.world
        mine = groups[self._seat.rank * each : (self._seat.rank + 1) * each]  # sick here
        mine = groups[self._seat.rank :: self._seat.world][:each]  # well
        g = torch.Generator().manual_seed(self._seed * 1009 + epoch)
        return [mine[i] for i in torch.randperm(each, generator=g).tolist()]


class BatchStream:
    """Endless batches for this process."""

    def __init__(self, store: JourneyStore, share: RankShare) -> None:
        self._store = store
        self._share = share

    def __iter__(self) -> Iterator[Batch]:
        epoch = 0
        while True:
            for rows in self._share.of_epoch(epoch):
                yield self._store.collate(rows)
            epoch += 1


class MaskedMean(nn.Module):
    def forward(self, hidden: Tensor, padding: Tensor) -> Tensor:
        weight = (~padding).to(hidden.dtype)
        return torch.einsum("btd,bt->bd", hidden, weight) / weight.sum(dim=1, keepdim=True)


class DelayNetwork(nn.Module):
    def __init__(self, channels: int, config: NetworkConfig) -> None:
        super().__init__()
        self.lift = nn.Linear(channels, config.width)
        layer = nn.TransformerEncoderLayer(
            config.width, config.heads, 2 * config.width, config.dropout, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, config.layers, enable_nested_tensor=False)
        self.pool = MaskedMean()
        self.head = nn.Sequential(nn.LayerNorm(config.width), nn.Linear(config.width, 1))

    def forward(self, values: Tensor, padding: Tensor) -> Tensor:
        hidden = self.encoder(self.lift(values), src_key_padding_mask=padding)
        return self.head(self.pool(hidden, padding)).squeeze(-1)


class Callback(Protocol):
    def after_step(self, step: int, loss: Tensor) -> None: ...


class LossReport:
    """Writes the mean loss of the last steps now and then, on the leading process."""

    def __init__(self, every: int, seat: Seat) -> None:
        self._every = every
        self._seat = seat
        self._sum = torch.zeros(())

    def after_step(self, step: int, loss: Tensor) -> None:
        self._sum += loss
        if step % self._every == 0:
            if self._seat.leads:
                log.info("step %d: loss %.5f", step, float(self._sum) / self._every)
            self._sum.zero_()


class Trainer:
    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, callbacks: Sequence[Callback]) -> None:
        self._model = model
        self._optimizer = optimizer
        self._callbacks = list(callbacks)
        self._loss = nn.SmoothL1Loss(beta=0.1)

    def _step(self, batch: Batch) -> Tensor:
        loss = self._loss(self._model(batch.values, batch.padding), batch.delay)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        return loss.detach()

    def fit(self, stream: BatchStream, steps: int) -> tuple[int, float]:
        seen = 0
        began = time.perf_counter()
        for step, batch in zip(range(1, steps + 1), stream):
            loss = self._step(batch)
            seen += len(batch)
            for callback in self._callbacks:
                callback.after_step(step, loss)
        return seen, time.perf_counter() - began


def build(config: RunConfig, seat: Seat) -> tuple[Trainer, BatchStream]:
    store = JourneyStore(config.journeys)
    buckets = LengthBuckets(store.lengths, config.batch_size, config.seed)
    stream = BatchStream(store, RankShare(buckets, seat, config.seed))
    model = DistributedDataParallel(
        DelayNetwork(config.journeys.channels, config.network), gradient_as_bucket_view=True
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, fused=True)
    return Trainer(model, optimizer, [LossReport(config.log_every, seat)]), stream


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    dist.init_process_group("gloo")
    config, seat = RunConfig(), Seat.take()
    torch.manual_seed(config.seed)
    trainer, stream = build(config, seat)
    seen, seconds = trainer.fit(stream, config.steps)
    if seat.leads:
        print(f"{seen * seat.world / seconds:.1f} samples/s")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
