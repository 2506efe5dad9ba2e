"""Samples that are asked for twice: which are the same, and when nobody asks."""

from __future__ import annotations

import functools
import os
import random
import subprocess
import sys
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    SequentialSampler,
    TensorDataset,
)
from users_file import UsersFile

from perfdoctor.injected._perfdoctor_probe.microbenchmarks import samples
from perfdoctor.injected._perfdoctor_probe.microbenchmarks.samples import asked_again


def asked(dataset: Any, **loader: Any) -> list[dict[str, Any]]:
    made = DataLoader(dataset, **{"batch_size": 4, **loader})
    made_with = SimpleNamespace(dataset=dataset, batch_sampler=made.batch_sampler, sampler=made.sampler)
    return asked_again(SimpleNamespace(in_use=lambda: {3: made_with}, sites=UsersFile(__file__)))


class Made(Dataset[Any]):
    """Samples that a function makes; counts how often it was asked."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        self.make, self.asked = make, []

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        return self.make(index)


def test_two_samples_are_asked_for_twice_and_told_with_their_bytes() -> None:
    dataset = Made(lambda index: (torch.full((8,), float(index)), index))
    (found,) = asked(dataset)
    assert found.pop("held")
    found.pop("kept")
    assert found == {"loader": 3, "same": True, "at": ("__getitem__", 2), "bytes": 8 * 4 + 8, "scattered": False}
    assert dataset.asked == [10, 30, 10, 30, 10], "and once more, line by line"


@pytest.mark.parametrize(("order", "scattered"), [((0, 1), True), ((1, 0), False)])
def test_samples_whose_numbers_lie_between_those_of_others_are_known(order: tuple[int, int], scattered: bool) -> None:
    """A column of a table, and a row."""
    table = torch.randn(300, 300).permute(order)

    class Columns(Dataset[Any]):
        def __len__(self) -> int:
            return 300

        def __getitem__(self, index: int) -> Any:
            return table[:, index], torch.zeros(3)

    (record,) = asked(Columns())
    assert record["scattered"] is scattered and record["same"] is True


def test_what_a_data_set_keeps_it_need_not_make_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at the clock takes a microsecond, making a sample 20 ms."""
    now = [0]

    def clock() -> int:
        now[0] += 1_000
        return now[0]

    def make(index: int) -> torch.Tensor:
        now[0] += 20_000_000
        return torch.full((8,), float(index))

    monkeypatch.setattr(samples, "time", SimpleNamespace(perf_counter_ns=clock))
    (plain,), (kept,) = asked(Made(make)), asked(Made(functools.lru_cache(make)))
    assert plain["kept"] == 0.0 and kept["kept"] > 0.99
    (last_only,) = asked(Made(functools.lru_cache(1)(make)))
    assert last_only["kept"] == 0.0


def mirrored(generator: Any) -> Callable[[int], Any]:
    """Which it hardly ever is."""
    return lambda index: np.arange(4.0)[:: -1 if generator() > 2 else 1].copy()


class Augmenting(Made):
    """Holds its generator in a transform."""

    def __init__(self) -> None:
        self.transforms = [SimpleNamespace(rng=np.random.default_rng(0))]
        super().__init__(mirrored(lambda: self.transforms[0].rng.random()))


RANDOM: dict[str, Dataset[Any]] = {
    "by python": Made(mirrored(random.random)),
    "by numpy": Made(mirrored(np.random.rand)),
    "by torch": Made(mirrored(lambda: torch.rand(1).item())),
    "by its own generator": Augmenting(),
    "noise": Made(lambda index: np.random.default_rng().normal(size=4)),
}


@pytest.mark.parametrize("dataset", RANDOM.values(), ids=RANDOM)
def test_random_samples_differ_though_they_happen_to_be_equal(dataset: Dataset[Any]) -> None:
    (record,) = asked(dataset)
    assert record["same"] is False


def _fails(index: int) -> Any:
    raise LookupError("a path of the user's")


class Epochs(Made):
    def set_epoch(self, epoch: int) -> None: ...


@pytest.mark.parametrize(
    ("dataset", "options", "reason"),
    [
        (Made(lambda index: object()), {}, "cannot be compared"),
        (Made(_fails), {}, "LookupError"),
        (Epochs(float), {}, "which epoch"),
        (Made(float), {"batch_size": None}, "whole batches"),
        (TensorDataset(torch.zeros(1)), {}, "one sample"),
    ],
    ids=["objects", "fails", "epochs", "batches", "one"],
)
def test_what_cannot_be_known_says_why(dataset: Any, options: dict[str, Any], reason: str) -> None:
    (record,) = asked(dataset, **options)
    assert reason in record["same"]["missing"]
    assert "a path" not in record["same"]["missing"]


def test_a_sample_that_takes_long_is_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]

    def slow(index: int) -> float:
        now[0] += 400_000_000
        return 1.0

    monkeypatch.setattr(samples.time, "perf_counter_ns", lambda: now[0])
    dataset = Made(slow)
    (record,) = asked(dataset)
    assert "too long" in record["same"]["missing"]
    assert len(dataset.asked) == 1


def test_streams_are_not_asked() -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            raise AssertionError

    made_with = SimpleNamespace(dataset=Stream(), batch_sampler=None)
    assert asked_again(SimpleNamespace(in_use=lambda: {0: made_with})) == []


def test_nothing_that_the_data_set_says_is_heard(capsys: pytest.CaptureFixture[str]) -> None:
    def loud(index: int) -> float:
        print("sample", index)
        warnings.warn("slow", stacklevel=1)
        return 1.0

    asked(Made(loud))
    assert capsys.readouterr() == ("", "")


def test_data_sets_with_equal_samples_are_known_by_them_where_a_loader_goes_through_all() -> None:
    def held(dataset: Any, **loader: Any) -> str:
        (found,) = asked(dataset, **loader)
        return str(found["held"])

    def numbers(first: int) -> TensorDataset:
        return TensorDataset(torch.arange(first, first + 40.0))

    assert held(numbers(0)) == held(numbers(0), shuffle=True) != held(numbers(40))
    parts = DistributedSampler(numbers(0), num_replicas=2, rank=0)
    assert held(numbers(0), sampler=parts) == held(Made(mirrored(random.random))) == ""
    batches = BatchSampler(SequentialSampler(numbers(0)), 4, drop_last=False)
    whole = {"batch_size": 1, "batch_sampler": batches}
    assert held(numbers(0), **whole) == held(numbers(0))
    accelerates = BatchSamplerShard(batches, num_processes=2, process_index=0)
    assert held(numbers(0), **{**whole, "batch_sampler": accelerates}) == "", "a part, though its loader has a sampler"


def test_they_are_known_in_another_process_too() -> None:
    code = "from test_samples_again import *; print(asked(TensorDataset(torch.arange(40.0)))[0]['held'])"
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1 and "-" in seen.pop()
