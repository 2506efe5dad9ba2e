"""What values hold, as numbers that equal values share."""

from __future__ import annotations

import collections
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from perfdoctor.injected._perfdoctor_probe.windows import content
from perfdoctor.injected._perfdoctor_probe.windows.content import Content, NotComparableError, fingerprint


class Point(NamedTuple):
    x: float
    y: float


class Slotted:
    __slots__ = ("x",)


def of(value: object, of_arguments: bool = False, **limits: int) -> Content:
    found = Content(of_arguments, **limits)
    found.add(value)
    return found


EQUAL: dict[str, tuple[Any, Any]] = {
    "no number": (math.nan, float("nan")),
    "sets": ({"a", "b", "c"}, {"c", "b", "a"}),
    "views": (torch.arange(6.0).reshape(2, 3).t(), torch.arange(6.0).reshape(2, 3).t().contiguous()),
    "arrays": (np.arange(6).reshape(2, 3)[:, ::2], np.array([[0, 2], [3, 5]])),
    "half": (torch.ones(3, dtype=torch.bfloat16), torch.ones(3, dtype=torch.bfloat16)),
    "ordered": (collections.OrderedDict(a=1), collections.OrderedDict(a=1)),
    "paths": (Path("a/b"), Path("a") / "b"),
    "times": (np.datetime64("2026-01-01"), np.datetime64("2026-01-01")),
    "nothing": (np.zeros((0, 3)), np.zeros((0, 3))),
}
OTHER: dict[str, tuple[Any, Any]] = {
    "-1 and -2": ([-1], [-2]),
    "signs of zero": (0.0, -0.0),
    "a number and a flag": (1, True),
    "a number and a text": (1, "1"),
    "a list and a tuple": ([1], (1,)),
    "where it is split": (["ab", "c"], ["a", "bc"]),
    "nesting": ([[1], 2], [1, [2]]),
    "shapes": (torch.zeros(2, 3), torch.zeros(3, 2)),
    "types": (torch.zeros(2), torch.zeros(2, dtype=torch.int32)),
    "a tensor and an array": (torch.zeros(2), np.zeros(2, dtype=np.float32)),
    "names": ({"a": 1}, {"b": 1}),
    "a named tuple": (Point(1.0, 2.0), Point(1.0, 3.0)),
    "the last of many": (np.arange(100_000), np.arange(100_000) // 99_999),
}


@pytest.mark.parametrize(("one", "other"), EQUAL.values(), ids=EQUAL)
def test_equal_values_have_the_same_number(one: Any, other: Any) -> None:
    assert of(one).number == of(other).number


@pytest.mark.parametrize(("one", "other"), OTHER.values(), ids=OTHER)
def test_other_values_have_another(one: Any, other: Any) -> None:
    assert of(one).number != of(other).number


@pytest.mark.parametrize(
    "value",
    [
        object(),
        lambda: 1,
        iter([1]),
        Slotted(),
        np.array([object()]),
        torch.ones(2, requires_grad=True),
        torch.ones(2).to_sparse(),
        [1, object()],
        torch.ones(2, device="meta"),
    ],
    ids=["object", "function", "iterator", "slots", "objects", "with a graph", "sparse", "inside", "elsewhere"],
)
def test_what_holds_more_than_can_be_seen_is_not_compared_but_as_an_argument(value: Any) -> None:
    with pytest.raises(NotComparableError):
        of(value)
    assert of(value, of_arguments=True).number == of(value, of_arguments=True).number


def test_large_values_are_not_compared_and_count_by_their_identity_as_arguments(monkeypatch: Any) -> None:
    large, alike = np.zeros(1000), np.zeros(1000)
    with pytest.raises(NotComparableError):
        of(large, largest=1000)
    assert of(large, of_arguments=True, largest=1000).number != of(alike, of_arguments=True, largest=1000).number
    monkeypatch.setattr(content, "_MOST_ITEMS", 100)
    many = [0] * 101
    with pytest.raises(NotComparableError):
        of(many)
    assert of(many, of_arguments=True).number != of(list(many), of_arguments=True).number


def test_a_list_that_holds_itself_has_an_end() -> None:
    itself: list[Any] = []
    itself.append(itself)
    with pytest.raises(NotComparableError):
        of(itself)


def test_a_fingerprint_tells_that_an_attribute_was_set() -> None:
    class Kept:
        def __init__(self) -> None:
            self.count, self.values = 0, [1]

    kept = Kept()
    before = fingerprint([kept])
    kept.values.append(2)
    assert fingerprint([kept]) == before
    kept.count += 1
    assert fingerprint([kept]) != before


def test_bytes_are_those_of_what_it_holds() -> None:
    assert of((torch.zeros(4), np.zeros(2), 7, "abc")).bytes == 16 + 16 + 8 + 3


@pytest.mark.parametrize(("mode", "text"), [("r", "eight"), ("rb", b"eight")])
def test_a_file_that_is_read_counts_by_its_name_and_where_reading_goes_on(
    tmp_path: Path, mode: str, text: str | bytes
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for path in (first, second):
        path.write_text("eight")
    with first.open(mode) as one, first.open(mode) as same, second.open(mode) as other:
        begun = of(one, of_arguments=True)
        assert begun.number == of(same, of_arguments=True).number != of(other, of_arguments=True).number
        assert begun.objects == []
        assert one.read() == text, "nothing of it was read"
        assert of(one, of_arguments=True).number != begun.number


def test_a_file_that_is_written_counts_by_its_identity(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as file:
        assert of(file, of_arguments=True).objects == [file]
