"""Parts of a model that a method of its own calls without gradients are counted, with how many rows they are given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from users_file import UsersFile

from perfdoctor.injected._perfdoctor_probe.windows.parts_called import PartsCalled

CALL = nn.Module.__call__


class Writer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 8)
        self.mix = nn.Sequential(nn.Linear(8, 8), nn.Tanh())

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.mix(self.embed(words))

    def write(self, words: torch.Tensor) -> torch.Tensor:
        for _ in range(5):
            self.mix(self.embed(words))
        return words


def _written(model: Writer, rows: int = 2) -> None:
    for _ in range(4):
        model.write(torch.zeros(rows, 1, dtype=torch.long))


def _called(model: Writer, inside_forward: bool = False, gradients: bool = False, rows: int = 2) -> Any:
    parts = PartsCalled(UsersFile(__file__), SimpleNamespace(inside_forward=inside_forward))
    parts.open()
    try:
        with torch.set_grad_enabled(gradients):
            _written(model, rows)
    finally:
        parts.close()
    assert nn.Module.__call__ is CALL
    return parts.summary().get("parts_called")


@pytest.mark.parametrize("rows", [1, 2, 50])
def test_the_outermost_calls_are_counted_with_their_rows_and_the_line_that_asks(rows: int) -> None:
    found = _called(Writer().eval(), rows=rows)
    assert (found["calls"], found["rows"]) == (4 * 5 * 2, 4 * 5 * 2 * rows)
    assert found["site"] == ("_written", 2), "a method of the model's is none"


def test_what_trains_or_is_a_part_of_a_forward_pass_does_not_count() -> None:
    model = Writer()
    assert _called(model.eval(), gradients=True) is None
    assert _called(model.eval(), inside_forward=True) is None
    assert _called(model.train()) is None


def test_a_few_calls_are_none() -> None:
    parts = PartsCalled(UsersFile(__file__), SimpleNamespace(inside_forward=False))
    parts.open()
    with torch.no_grad():
        Writer().eval()(torch.zeros(1, 1, dtype=torch.long))
    parts.close()
    assert parts.summary() == {}


def test_a_call_that_raises_leaves_nothing_behind() -> None:
    parts = PartsCalled(UsersFile(__file__), SimpleNamespace(inside_forward=False))
    parts.open()
    with torch.no_grad(), pytest.raises(IndexError):
        Writer().eval().embed(torch.full((1, 1), 99))
    parts.close()
    assert (parts.calls, parts.inside) == (1, False)
