"""Forward passes that are each given one token more than the one before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perfdoctor.injected._perfdoctor_probe.hooks.decoding import Decoding

MODEL, OTHER = object(), object()


class Bench:
    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        recorder = SimpleNamespace(record=lambda kind, /, **fields: self.records.append({"k": kind, **fields}))
        self.decoding = Decoding(recorder, SimpleNamespace(here=lambda depth=1: 7))

    def passes(self, *batches: torch.Tensor, step: int = 3, model: object = MODEL) -> list[dict[str, Any]]:
        for tokens in batches:
            self.decoding.forward_ended(2_000_000, model, ((), {"input_ids": tokens}), step)
        self.decoding.flush()
        return self.records


def growing(count: int = 5, rows: int = 2, dtype: torch.dtype = torch.int64) -> list[torch.Tensor]:
    whole = torch.arange(rows * 40).reshape(rows, 40).to(dtype)
    return [torch.cat([whole[:, :length]], dim=1) for length in range(10, 10 + count)]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_passes_that_grow_by_a_token_are_counted_after_the_first(dtype: torch.dtype) -> None:
    assert Bench().passes(*growing(dtype=dtype)) == [{"k": "decoded", "step": 3, "passes": 4, "us": 8000, "site": 7}]


def test_views_of_one_tensor_grow_as_well() -> None:
    whole = torch.arange(80).reshape(2, 40)
    (record,) = Bench().passes(*(whole[:, :length] for length in range(10, 15)))
    assert record["passes"] == 4


def test_each_step_has_a_record() -> None:
    bench = Bench()
    bench.passes(*growing())
    assert [record["step"] for record in bench.passes(*growing(), step=9)] == [3, 9]


@pytest.mark.parametrize(
    "batches",
    [
        [torch.arange(2).reshape(2, 1) + place for place in range(10)],
        [torch.randint(0, 9, (2, length), generator=torch.Generator().manual_seed(length)) for length in range(9, 14)],
        [torch.arange(2 * length).reshape(2, length) for length in range(10, 30, 2)],
        [one.float() for one in growing()],
        [one[:rows] for rows, one in zip((1, 2, 1, 2, 1), growing(), strict=True)],
        [growing(1)[0]] * 5,
    ],
    ids=[
        "with a cache",
        "batches sorted by length",
        "two tokens more",
        "no tokens",
        "other sequences",
        "the same again",
    ],
)
def test_other_passes_are_none(batches: list[torch.Tensor]) -> None:
    assert Bench().passes(*batches) == []


def test_another_model_or_step_begins_anew() -> None:
    bench = Bench()
    one, two, three = growing(3)
    bench.passes(one)
    bench.passes(two, model=OTHER)
    assert bench.passes(three, step=4) == []
