"""What steps compute of their samples alone: what every epoch computes again, and what only looks like it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from learning_job import UNWATCHED
from torch import nn
from users_file import UsersFile

from perfdoctor.injected._perfdoctor_probe import timeline
from perfdoctor.injected._perfdoctor_probe.windows import by_line, repeats
from perfdoctor.injected._perfdoctor_probe.windows.repeats import RepeatsWindow

BATCH, ROWS, WIDTH = 16, 256, 24
Made = Callable[["Job", torch.Tensor], torch.Tensor]


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each operator takes 50 us, and all are named."""
    monkeypatch.setattr(repeats, "_clock", itertools.count(0, 50_000).__next__)
    monkeypatch.setattr(by_line, "_NAMES", 20)


class Job:
    """A head that trains on what is made of its samples."""

    def __init__(self) -> None:
        self.frozen = nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh()).eval()
        self.drops, self.norm = nn.Dropout(0.5), nn.BatchNorm1d(WIDTH)
        self.head = nn.LazyLinear(4)
        self.table = torch.randn(ROWS, WIDTH)
        self.order = torch.randperm(BATCH)
        self.number = 0
        self.optimizer: torch.optim.Optimizer | None = None

    def batch(self) -> torch.Tensor:
        """As a loader's workers give it."""
        self.number += 1
        return torch.from_numpy(np.random.default_rng(self.number).normal(size=(BATCH, WIDTH)).astype(np.float32))

    def learns(self, features: torch.Tensor) -> None:
        self.head(features.flatten(1)).square().mean().backward()
        self.optimizer = self.optimizer or torch.optim.SGD([*self.head.parameters(), *self.frozen.parameters()], 0.1)
        self.optimizer.step()
        self.optimizer.zero_grad()


def watched(made: Made, job: Job | None = None, by_loader: bool = True) -> RepeatsWindow:
    """The window, after four steps that train on what is `made` of a batch."""
    job = job or Job()
    clock = SimpleNamespace(step=7, stack=[timeline.OTHER], spent=[0] * timeline.PARTS)
    loop = SimpleNamespace(timeline=clock, on_batch=None)
    window = RepeatsWindow(UsersFile(__file__), loop, compiled=False, evaluation=UNWATCHED)
    job.learns(made(job, job.batch()))
    window.open()
    try:
        for _ in range(4):
            batch = job.batch()
            if by_loader:
                loop.on_batch((batch,))
            job.learns(made(job, batch))
            clock.step += 1
    finally:
        window.close(4)
    assert loop.on_batch is None
    return window


def rows(made: Made, job: Job, by_loader: bool = True) -> dict[str, Any]:
    """What every epoch computes again."""
    window = watched(made, job, by_loader)
    assert window.of_samples is not None
    is_as_it_was, found = window.of_samples
    assert is_as_it_was()
    return dict(found)


def frozen(job: Job, batch: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return job.frozen(batch)


def in_inference_mode(job: Job, batch: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        features = job.frozen(batch)
    return features.clone()


def spectrum(job: Job, batch: torch.Tensor) -> torch.Tensor:
    return torch.fft.rfft(batch).abs().add(1).log()


def joined(job: Job, batch: torch.Tensor) -> torch.Tensor:
    scaled = (batch - batch.mean(1, keepdim=True)).mul_(2.0)
    return torch.cat([scaled, spectrum(job, batch)], 1)


def picked(job: Job, batch: torch.Tensor) -> torch.Tensor:
    return spectrum(job, job.table[torch.randint(ROWS, (BATCH,))])


def picked_alone(job: Job, batch: torch.Tensor) -> torch.Tensor:
    return job.table[torch.randint(ROWS, (BATCH,))]


def in_order(job: Job, batch: torch.Tensor) -> torch.Tensor:
    return spectrum(job, job.table[BATCH * job.number : BATCH * (job.number + 1)])


@pytest.mark.parametrize("made", [frozen, in_inference_mode, spectrum, joined])
def test_what_is_made_of_a_loaders_samples_alone_comes_again_in_each_epoch(made: Made) -> None:
    class Untrained(Job):
        def learns(self, features: torch.Tensor) -> None:
            self.head(features.flatten(1)).square().mean().backward()

    found = rows(made, Untrained())
    assert found["by_loader"] and found["rows"] == 0 and found["batch"] == BATCH
    assert 0 < found["bytes"] <= 4 * (2 * WIDTH)
    names = {name for row in found["lines"] for name in row["operators"]}
    assert names & {"addmm", "tanh", "abs", "log", "sub"} and not names & {"mm", "square"}


@pytest.mark.parametrize("made", [picked, in_order])
def test_so_does_what_is_made_of_rows_of_a_tensor_in_memory(made: Made) -> None:
    found = rows(made, Job(), by_loader=False)
    assert not found["by_loader"] and found["rows"] == ROWS and found["batch"] == BATCH


def test_the_line_is_the_outermost_that_does_nothing_else() -> None:
    found = rows(spectrum, Job())
    (row,) = found["lines"]
    assert row["at"] == spectrum.__code__.co_firstlineno + 1
    assert row["ops_per_step"] == 4.0 and row["forward_ms"] == pytest.approx(0.2)


def test_a_model_that_changes_later_is_no_longer_as_it_was() -> None:
    job = Job()
    job.optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)
    window = watched(frozen, job)
    assert window.of_samples is not None and window.of_samples[0]()
    with torch.no_grad():
        job.frozen[0].weight.mul_(0.5)
    assert not window.of_samples[0]()


def noisy(job: Job, batch: torch.Tensor) -> torch.Tensor:
    return spectrum(job, batch + torch.randn_like(batch))


def dropping(job: Job, batch: torch.Tensor) -> torch.Tensor:
    return spectrum(job, job.drops(batch))


def normalised_by_batch(job: Job, batch: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return spectrum(job, job.norm(batch))


def by_its_mean(job: Job, batch: torch.Tensor) -> torch.Tensor:
    return torch.fft.rfft(batch - batch.mean(0)).abs().log()


def each_with_each(job: Job, batch: torch.Tensor) -> torch.Tensor:
    return (batch[:, None] - batch[None]).abs().sum(-1).log()


def as_a_product(job: Job, batch: torch.Tensor) -> torch.Tensor:
    return (batch @ batch.t()).abs().log()


def over_the_batch(job: Job, batch: torch.Tensor) -> torch.Tensor:
    return batch.softmax(0).log()


def turned_round(job: Job, batch: torch.Tensor) -> torch.Tensor:
    return (batch + batch.flip(0)).abs().log()


def in_another_order(job: Job, batch: torch.Tensor) -> torch.Tensor:
    return (batch + batch[job.order]).abs().log()


def mixed(job: Job, batch: torch.Tensor) -> torch.Tensor:
    return batch.mul(float(np.random.default_rng(100 + job.number).random())).abs().log()


def shifted(job: Job, batch: torch.Tensor) -> torch.Tensor:
    return batch.roll(job.number, 1).abs().log()


def cropped(job: Job, batch: torch.Tensor) -> torch.Tensor:
    start = job.number % 5
    return batch[:, start : start + 12].abs().log()


def mirrored_by_chance(job: Job, batch: torch.Tensor) -> torch.Tensor:
    return spectrum(job, batch.flip(1) if random.random() < 2 else batch)


def hidden_by_numpy(job: Job, batch: torch.Tensor) -> torch.Tensor:
    kept = np.random.default_rng(100 + job.number).random(batch.shape) < 0.5
    return (batch * torch.from_numpy(kept)).abs().log()


def written_over(job: Job, batch: torch.Tensor) -> torch.Tensor:
    job.table[job.number] = 0.0
    return picked(job, batch)


@pytest.mark.parametrize(
    "made",
    [
        frozen,  # its parameters are the optimizer's here, and it changes them
        noisy,
        dropping,
        normalised_by_batch,
        by_its_mean,
        each_with_each,
        as_a_product,
        over_the_batch,
        turned_round,
        in_another_order,
        mixed,
        shifted,
        cropped,
        mirrored_by_chance,
        hidden_by_numpy,
        written_over,
    ],
)
def test_what_another_epoch_would_make_otherwise_is_left_alone(made: Made) -> None:
    class Decaying(Job):
        def learns(self, features: torch.Tensor) -> None:
            super().learns(features)
            with torch.no_grad():
                self.frozen[0].weight.mul_(0.99)

    assert watched(made, Decaying()).of_samples is None


@pytest.mark.parametrize("made", [frozen, spectrum])
def test_samples_that_no_loader_gave_and_no_tensor_holds_are_left_alone(made: Made) -> None:
    assert watched(made, by_loader=False).of_samples is None


def test_rows_that_are_picked_and_nothing_more_are_left_alone() -> None:
    """What is made of them once would be picked from too."""
    assert watched(picked_alone, by_loader=False).of_samples is None


def test_what_has_a_graph_and_what_is_little_is_left_alone() -> None:
    def trains(job: Job, batch: torch.Tensor) -> torch.Tensor:
        return job.frozen(batch)

    def little(job: Job, batch: torch.Tensor) -> torch.Tensor:
        features = job.frozen(batch.abs())
        for _ in range(100):
            features = features.tanh()
        return features

    assert watched(trains).of_samples is None
    assert watched(little).of_samples is None
