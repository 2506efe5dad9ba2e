"""Loaders after their last iterator: which are kept, which may go."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from perfdoctor.injected._perfdoctor_probe.hooks import last_loaders
from perfdoctor.injected._perfdoctor_probe.hooks.last_loaders import LastLoaders, may_be_kept

SMALL = torch.zeros(10, 4)


class Holding(Dataset[Any]):
    """Keeps what it is given."""

    def __init__(self, *kept: Any) -> None:
        self.kept = kept

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        return index

    @property
    def asked(self) -> Any:
        raise AssertionError("the job's own code runs")


class Kind(torch.Tensor):
    """Somebody's own."""


class Closing:
    def close(self) -> None: ...


@pytest.mark.parametrize(
    "dataset",
    [
        TensorDataset(SMALL),
        Subset(TensorDataset(SMALL), [1, 2]),
        Holding("a word", {"a": [1, 2.0]}, np.zeros(8), torch.nn.Linear(2, 2), lambda x: x),
        Holding([torch.zeros(100) for _ in range(5000)]),
    ],
)
def test_a_small_data_set_may_be_kept(dataset: Any) -> None:
    assert may_be_kept(dataset)


@pytest.mark.parametrize(
    "held",
    [
        torch.zeros(1 << 25),
        np.zeros(1 << 24),
        [torch.zeros(4000) for _ in range(5000)],
        [{"row": [np.zeros(30_000)]} for _ in range(500)],
        Closing(),
        [Holding(Closing())],
        torch.zeros(2).as_subclass(Kind),
        np.array([Closing(), 1]),
        {"a list": [Holding(1), Holding(Holding(Closing()))]},
    ],
)
def test_one_that_is_large_or_may_be_waited_for_is_not(held: Any) -> None:
    assert not may_be_kept(Holding(held))


def test_an_open_file_is_not_kept_open(tmp_path: Path) -> None:
    with (tmp_path / "rows").open("w") as file:
        assert not may_be_kept(Holding(file))


def test_one_of_many_parts_is_not_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_loaders, "_OBJECTS", 5)
    assert not may_be_kept(Holding([[number] for number in range(10)]))


def _made_with(loader: Any) -> Any:
    return SimpleNamespace(dataset=loader.dataset)


def _noted(*datasets: Any) -> LastLoaders:
    last = LastLoaders(_made_with)
    for number, dataset in enumerate(datasets):
        last.note(number, DataLoader(dataset))
    gc.collect()
    return last


def test_a_small_data_set_outlives_the_job_and_a_large_one_does_not() -> None:
    alive = _noted(TensorDataset(SMALL), Holding(Closing())).alive()
    assert list(alive) == [0]
    assert alive[0].dataset.tensors[0] is SMALL


def test_a_large_ones_is_known_while_the_job_keeps_it() -> None:
    last, loader = LastLoaders(_made_with), DataLoader(Holding(Closing()))
    last.note(3, loader)
    assert last.alive() == {3: _made_with(loader)}


def test_of_a_small_ones_loader_the_data_set_alone_is_held() -> None:
    """With the loader its persistent workers would stay."""
    last, loader = LastLoaders(_made_with), DataLoader(TensorDataset(SMALL))
    last.note(3, loader)
    gone = weakref.ref(loader)
    del loader
    gc.collect()
    assert gone() is None and 3 in last.alive()


def test_a_job_that_makes_loaders_all_the_time_has_its_first_data_sets_looked_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(last_loaders, "_WALKS", 2)
    assert list(_noted(*[TensorDataset(SMALL)] * 4).alive()) == [0, 1]


def test_the_latest_few_are_known() -> None:
    assert list(_noted(*[TensorDataset(SMALL)] * 11).alive()) == [3, 4, 5, 6, 7, 8, 9, 10]
