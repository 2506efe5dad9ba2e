"""How often a line ran, by the operators that its places in the bytecode have called."""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perfdoctor.injected._perfdoctor_probe import timeline
from perfdoctor.injected._perfdoctor_probe.windows import issued
from perfdoctor.injected._perfdoctor_probe.windows.issued import IssuedByLine

RUNS = 40


def _runs(places: list[int], via: tuple[str, str] | None = None) -> float:
    """Of a line that calls an operator at each of these places, 40 times."""
    called: Iterator[int] = iter(places * RUNS)
    sites: Any = SimpleNamespace(
        call=lambda depth, thread: (7, ("frame", next(called)), via),
        stack=lambda frame, packages=False: [],
        is_library=lambda file: True,
    )
    loop = SimpleNamespace(timeline=SimpleNamespace(stack=[timeline.OTHER], step=0), optimizer_steps=0)
    lines = IssuedByLine(sites, loop, get_ident())
    for _ in range(len(places) * RUNS):
        lines.note(torch.ops.aten.add.Tensor, 1_000, 0, None)
    (row,) = lines.summary(1)
    return row["runs_per_step"]


@pytest.mark.parametrize(
    "places",
    [
        [4],
        [4, 8, 12],
        [4, 4, 4, 4, 8, 8, 12, 16, 20],
        [4, 4, 4, 8],
    ],
)
def test_a_place_that_calls_several_operators_counts_once(places: list[int]) -> None:
    assert _runs(places) == RUNS


def test_operators_of_one_call_of_a_library_are_one() -> None:
    assert _runs([4, 4, 4, 8], via=("functional.py", "linear")) == RUNS


def test_where_only_every_few_operators_are_looked_at_it_goes_by_those_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issued, "_WALKS", 24)
    assert _runs([4, 4, 4, 8, 12, 16]) == pytest.approx(RUNS, rel=0.1)
