"""A remedy that fails half-way, or whose job fails under it, leaves the job as it was; and so does one that worked."""

from __future__ import annotations

import gc
import linecache
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from remedy_job import IN_JOB, NEEDS_WORKERS, UNSUITABLE_HERE, Job, Pictures, draw_from, illness, made, with_workers
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, Sampler, TensorDataset

from perfdoctor.injected._perfdoctor_probe import remedies
from perfdoctor.injected._perfdoctor_probe.remedies import catalogue, samplers
from perfdoctor.injected._perfdoctor_probe.remedies.base import UnsuitableError

FOLDER = str(Path(remedies.__file__).parent)
IRREVERSIBLE = {entry.name for entry in catalogue.ENTRIES if not entry.reversible}
STARTING = {"etl.workers", "etl.worker-threads", "etl.prefetch"}
"""Each try starts processes: every fifth place is enough."""


NO_FAILURE = ("def ", "raise ", "torch.set_rng_state(")
"""Lines that call nothing, and one that takes something back itself."""


class InjectedError(Exception):
    """Where torch, or the job's own class, might have raised."""


class Failing:
    """Raises at the `place`-th different line of a remedy's own code that calls something, while it is entered."""

    def __init__(self, place: int) -> None:
        self.place = place
        self.at = ""
        self.seen: set[str] = set()

    def __enter__(self) -> Failing:
        sys.settrace(self._trace)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        sys.settrace(None)
        return kind is InjectedError

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(FOLDER) or code.co_name.startswith("<"):
            return None
        line = linecache.getline(code.co_filename, frame.f_lineno).strip()
        place = f"{Path(code.co_filename).name}:{frame.f_lineno}: {line}"
        if event == "line" and "(" in line and not line.startswith(NO_FAILURE) and place not in self.seen:
            self.seen.add(place)
            if len(self.seen) > self.place:
                sys.settrace(None)
                self.at = place
                raise InjectedError(place)
        return self._trace


@pytest.fixture
def few_objects(name: str) -> Iterator[None]:
    """The collector lists only what is made from here on: remedies look through all of that, 0.1 s each time."""
    if name != "gc.freeze":
        gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("few_objects")
@pytest.mark.parametrize("name", [name for name in IN_JOB if name not in IRREVERSIBLE])
def test_wherever_a_remedy_fails_the_job_is_as_it_was(name: str) -> None:
    with illness():
        job = Job(Pictures()) if name == "layout.channels-last" else Job()
        if name in NEEDS_WORKERS:
            with_workers(job)
        before, numbers = job.settings(), job.numbers()
        for place in range(0, 60, 5 if name in STARTING else 1):
            remedy = made(name, job)
            failing = Failing(place)
            try:
                with failing:
                    remedy.apply()
            except UnsuitableError:
                pass
            remedy.withdraw()
            assert job.settings() == before, failing.at
            assert job.numbers() == numbers, failing.at
            if not failing.at:
                break
        assert not failing.at, "the whole of `apply` was gone through"


# ---------------------------------------------------------------------------------------------------------
# The job's own results afterwards

EXACT = [
    entry.name
    for entry in catalogue.ENTRIES
    if entry.home and entry.reversible and not entry.numerics and entry.slot != "batches"
]
"""Remedies that change no number, even while they are in place."""
ITS_OWN_BACK = ["dtype.float32", "dtype.autocast", "attention.sdpa", "optimizer.foreach", "onednn.on", "threads"]
"""Those that do, but take nothing away: untouched steps after them compute what they would have."""


def losses(job: Job, steps: int) -> list[float]:
    found = []
    for _ in range(steps):
        inputs, targets = next(job.iterator)
        job.loading.rows.append((0, job.loading.loop.timeline.step, 0, -1, 0, 0, 0))
        job.optimizer.zero_grad()
        loss = nn.functional.mse_loss(job.model(inputs), targets)
        loss.backward()
        job.optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("name", EXACT)
def test_the_loss_curve_is_that_of_an_undisturbed_run(name: str) -> None:
    undisturbed = losses(Job(), 12)
    with illness():
        job = Job()
        disturbed = losses(job, 3)
        for _ in range(2):
            remedy = made(name, job)
            try:
                remedy.apply()
            except UnsuitableError:
                assert name in UNSUITABLE_HERE
            disturbed += losses(job, 2)
            remedy.withdraw()
            disturbed += losses(job, 2)
        disturbed += losses(job, 1)
    assert disturbed == undisturbed


@pytest.mark.parametrize("name", ITS_OWN_BACK)
def test_after_a_remedy_without_a_step_the_loss_curve_goes_on(name: str) -> None:
    undisturbed = losses(Job(), 8)
    job = Job()
    if name == "onednn.on":
        torch._C._set_mkldnn_enabled(False)
    try:
        disturbed = losses(job, 4)
        remedy = made(name, job)
        remedy.apply()
        remedy.withdraw()
        disturbed += losses(job, 4)
    finally:
        torch._C._set_mkldnn_enabled(True)
    assert disturbed == undisturbed


class Refusing(nn.Module):
    """Fails in any type but the one it was made for, as code that names its types does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        if y.dtype != torch.float64 or torch.is_autocast_enabled("cpu"):
            raise TypeError(f"float64 is wanted, not {y.dtype}")
        return y


@pytest.mark.parametrize("name", ["dtype.float32", "dtype.autocast"])
def test_a_model_that_fails_under_a_remedy_is_itself_again_afterwards(name: str) -> None:
    job = Job(Refusing())
    job.optimizer.zero_grad()
    before, numbers = job.settings(), job.numbers()
    remedy = made(name, job)
    remedy.apply()
    with pytest.raises(TypeError, match="is wanted"):
        losses(job, 1)
    remedy.withdraw()
    after = job.settings()
    moved = {"iterator", "random"}  # a batch was drawn
    assert {k: v for k, v in after.items() if k not in moved} == {k: v for k, v in before.items() if k not in moved}
    assert job.numbers() == numbers
    assert losses(job, 2)


# ---------------------------------------------------------------------------------------------------------
# Samplers and data sets that do not like to be copied


class Counting(Sampler[int]):
    """Shuffles what it holds, with a generator of its own, and counts its epochs."""

    def __init__(self, length: int) -> None:
        self.order = list(range(length))
        self.generator = torch.Generator().manual_seed(3)
        self.epochs = 0

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Any:
        self.epochs += 1
        first = int(torch.randint(len(self.order), (1,), generator=self.generator))
        self.order.append(self.order.pop(first))
        return iter(self.order)


@pytest.mark.parametrize("name", ["etl.workers", "batch.larger", "etl.replay"])
def test_a_sampler_with_a_state_of_its_own_goes_on_as_if_nothing_had_been(name: str) -> None:
    job = Job()
    sampler = Counting(64)
    draw_from(job, DataLoader(job.loader.dataset, batch_size=4, sampler=sampler))
    before = sampler.epochs, list(sampler.order), sampler.generator.get_state().tolist()
    remedy = made(name, job)
    remedy.apply()
    next(job.iterator)
    remedy.withdraw()
    assert (sampler.epochs, sampler.order, sampler.generator.get_state().tolist()) == before


def test_samplers_inside_samplers_and_their_generators_are_copied_and_data_sets_are_not() -> None:
    data = TensorDataset(torch.arange(8))
    inner = RandomSampler(data, generator=torch.Generator().manual_seed(1))
    outer = BatchSampler(inner, 2, drop_last=True)
    before = inner.generator.get_state()
    other = samplers.copied(outer)
    assert other.sampler.data_source is data
    drawn = list(other)
    assert torch.equal(inner.generator.get_state(), before)
    assert drawn == list(outer), "it draws what the job's would have drawn"


class Slotted:
    __slots__ = ()

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Any:
        return iter([0])


def test_a_sampler_that_cannot_be_copied_is_shared() -> None:
    sampler = Slotted()
    assert samplers.copied(sampler) is sampler


class Unpicklable(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    def __init__(self) -> None:
        self.make = lambda index: (torch.full((4,), index), torch.zeros(3))

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        inputs, targets = self.make(index)
        return inputs.double(), targets.double()


def test_a_data_set_that_cannot_be_sent_to_a_worker_ends_the_trial_and_nothing_else() -> None:
    job = Job()
    draw_from(job, DataLoader(Unpicklable(), batch_size=4))
    before = job.settings()
    remedy = made("etl.workers", job)
    clone = remedy.settings
    remedy.settings = lambda loader: {**clone(loader), "multiprocessing_context": "spawn"}
    with pytest.raises(Exception, match="pickle"):
        remedy.apply()
    remedy.withdraw()
    assert job.settings() == before
    assert next(job.iterator)[0].tolist()[0] == [4.0] * 4, "the epoch goes on where it was"
