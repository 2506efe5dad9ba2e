"""Workers that stay, and the threads that they compute with."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Iterator

import pytest
import torch
from remedy_job import Job
from torch.utils.data import DataLoader, Dataset, IterableDataset

from perfdoctor.injected._perfdoctor_probe import remedies
from perfdoctor.injected._perfdoctor_probe.remedies.base import UnsuitableError
from perfdoctor.injected._perfdoctor_probe.remedies.worker_threads import InWorker


class Threads(Dataset[torch.Tensor]):
    """Each sample is the number of threads that made it."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(torch.get_num_threads())


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(8))


class Loop(Job):
    """Draws from a loader with one worker."""

    def __init__(self, dataset: Dataset[torch.Tensor] | IterableDataset[int], workers: int = 1) -> None:
        super().__init__()
        self.loader = DataLoader(dataset, batch_size=2, num_workers=workers)
        self.loading.made(self.loader)
        self.begin()

    def begin(self) -> None:
        self.iterator = iter(self.loader)
        self.loading.iterator_made(self.loader, self.iterator, 0)
        next(self.iterator)
        self.loading.rows.append((1, self.loading.loop.timeline.step, 0, -1, 0, 0, 0))


def test_workers_of_the_running_epoch_serve_the_next_ones_and_end_afterwards() -> None:
    job = Loop(Threads())
    remedy = remedies.make("etl.persistent-workers", job)
    remedy.apply()
    first = {child.pid for child in multiprocessing.active_children()}
    rest = sum(1 for _ in job.iterator)
    job.begin()
    assert (rest, {child.pid for child in multiprocessing.active_children()}) == (3, first)
    remedy.withdraw()
    assert sum(1 for _ in job.iterator) == 3, "the epoch goes on to its end"
    assert not multiprocessing.active_children(), "and its workers end with it, as the job wants it"
    job.begin()
    assert {child.pid for child in multiprocessing.active_children()} - first


@pytest.mark.parametrize(("dataset", "workers", "why"), [(Threads(), 0, "no workers"), (Stream(), 1, "iterable")])
def test_workers_that_cannot_stay_say_why(dataset: Dataset[torch.Tensor], workers: int, why: str) -> None:
    job = Loop(dataset, workers)
    remedy = remedies.make("etl.persistent-workers", job)
    with pytest.raises(UnsuitableError, match=why):
        remedy.apply()
    remedy.withdraw()
    assert not job.loader.persistent_workers


def test_workers_compute_with_the_threads_that_are_asked_for() -> None:
    job = Loop(Threads())
    remedy = remedies.make("etl.worker-threads=3", job)
    remedy.apply()
    assert next(job.iterator).tolist() == [3, 3]
    remedy.withdraw()
    assert next(job.iterator).tolist() == [1, 1]


def test_what_the_job_runs_in_its_workers_runs_first(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[object] = []
    monkeypatch.setattr(torch, "set_num_threads", called.append)
    InWorker(2, lambda worker: called.append(f"worker {worker}"))(5)
    assert called == ["worker 5", 2]
    assert pickle.loads(pickle.dumps(InWorker(2, None))).threads == 2, "workers may be spawned"
