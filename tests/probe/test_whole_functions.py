"""Functions that return again what they have returned: whose result is the same as a whole, and what objects are."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from following import followed as followed_by_a_window
from following import spend

from perfdoctor.injected._perfdoctor_probe import timeline

pytestmark = pytest.mark.usefixtures("standing_clock")


def table(size: int = 8) -> np.ndarray:
    spend()
    return np.arange(size, dtype=np.float32)


def seen(step: Callable[[], object], steps: int = 2, part: int = timeline.OTHER) -> list[dict[str, Any]]:
    """Rows of a window over so many steps."""
    return followed_by_a_window(step, __file__, steps, part)


def names(step: Callable[[], object], **options: Any) -> list[str]:
    return [row["function"] for row in seen(step, **options)]


@dataclass
class Vocabulary:
    words: dict[str, int]


def test_a_plain_object_is_what_its_attributes_are() -> None:
    def read() -> Vocabulary:
        spend()
        return Vocabulary({str(number): number for number in range(20)})

    assert len(names(read)) == 1


class Bank:
    def __init__(self, bands: int) -> None:
        spend()
        self.filters = np.arange(float(bands))


def test_an_object_that_is_made_again_is_told_by_its_class() -> None:
    assert names(lambda: Bank(16)) == ["Bank"]


def test_the_outermost_function_is_named_whose_whole_result_is_the_same() -> None:
    def inner() -> np.ndarray:
        spend(2.0)
        return np.arange(8.0)

    def outer() -> np.ndarray:
        spend(1.0)
        return inner() + 1

    (row,) = seen(outer)
    assert (row["function"], row["ms_per_step"]) == ("outer", 3.0)
    assert [site[0] for site in row["within"]] == ["inner"]


def test_below_a_function_that_differs_the_inner_one_is() -> None:
    counted = iter(range(100))

    def sample() -> np.ndarray:
        spend()
        return table() + next(counted)

    assert names(sample) == ["table"]


@pytest.mark.parametrize("alone", [True, False], ids=["one function", "several"])
def test_a_decorators_wrapper_has_the_name_of_what_it_wraps(alone: bool) -> None:
    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    wrapped, other = timed(table), timed(lambda: None)

    def step() -> None:
        wrapped(4)
        None if alone else other()

    (row,) = seen(step)
    assert (row["function"], row["at"], row["ms_per_step"]) == ("table", ("step", 1), 1.0)


def test_a_function_that_several_lines_call_is_told_where_it_is_defined() -> None:
    def step() -> None:
        table()
        spend()
        table()

    (row,) = seen(step)
    assert (row["at"], row["calls_per_step"]) == (("table", 0), 2.0)


class Walker:
    """Whose state moves with each call, though what it returns does not."""

    def __init__(self) -> None:
        self.at = 0

    def walk(self) -> np.ndarray:
        spend()
        self.at += 1
        return np.arange(8.0)

    def look(self) -> np.ndarray:
        spend()
        return np.arange(8.0)


def test_who_changes_the_object_that_it_was_given_is_called_for_that() -> None:
    walker = Walker()
    assert names(walker.walk) == []
    assert len(names(walker.look)) == 1


def test_an_object_with_another_state_is_another_argument() -> None:
    walker = Walker()

    def step() -> None:
        walker.look()
        walker.at += 1

    assert names(step) == []


def test_what_a_model_computes_depends_on_what_it_learns() -> None:
    model = torch.nn.Linear(4, 4)

    def predicted() -> np.ndarray:
        spend()
        with torch.no_grad():
            return model(torch.ones(4)).numpy()

    assert names(predicted) == []


def test_results_with_a_graph_are_none_to_keep() -> None:
    weight = torch.ones(8, requires_grad=True)

    def scaled() -> torch.Tensor:
        spend()
        return weight * torch.arange(8)

    assert names(scaled) == []
