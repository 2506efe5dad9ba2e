"""What lies between two steps: operators without a graph, and those alone."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from users_file import UsersFile

from perfdoctor.injected._perfdoctor_probe import timeline
from perfdoctor.injected._perfdoctor_probe.windows import between as between_steps
from perfdoctor.injected._perfdoctor_probe.windows import equivalents
from perfdoctor.injected._perfdoctor_probe.windows.between import BetweenWindow

ITEMS = nn.Embedding(2000, 64)
TOWER = nn.Linear(64, 64)
USERS = torch.randn(4, 32, 64, generator=torch.Generator().manual_seed(0))
TARGETS = torch.arange(32)


def scores(users: torch.Tensor) -> torch.Tensor:
    items = TOWER(ITEMS.weight)
    return TOWER(users) @ items.T


def places(users: torch.Tensor) -> torch.Tensor:
    order = scores(users).argsort(dim=1, descending=True)
    return (order == TARGETS[:, None]).nonzero()


def evaluated() -> None:
    with torch.no_grad():
        for users in USERS:
            places(users)


def evaluated_in_inference_mode() -> None:
    with torch.inference_mode():
        for users in USERS:
            places(users)


def trained() -> None:
    for users in USERS:
        scores(users).sum().backward()


def watched(between: Callable[[], None]) -> dict[str, Any]:
    """A step with this before it."""
    clock = SimpleNamespace(step=7, stack=[timeline.OTHER], spent=[0] * timeline.PARTS, mark=0, boundary_ns=0)
    window = BetweenWindow(
        UsersFile(__file__),
        SimpleNamespace(timeline=clock, inside_forward=False),
        compiled=False,
        evaluation=SimpleNamespace(on_scores=None),
    )
    assert window.obstacle() == ""
    between()
    trained()  # the first time takes long
    window.open()
    try:
        between()
        trained()
    finally:
        assert window.closable()
        found = window.close(1)
    assert torch._C._len_torch_dispatch_stack() == 0
    return found


@pytest.mark.parametrize("between", [evaluated, evaluated_in_inference_mode])
def test_what_an_evaluation_computes_again_and_the_long_way_is_told(
    between: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each other way takes 10 us, by the clock."""
    monkeypatch.setattr(equivalents, "_clock", itertools.count(0, 10_000).__next__)
    found = watched(between)
    (again,), (sort,) = found["rows"], found["equivalents"]
    assert again["at"] == scores.__code__.co_firstlineno + 1
    # Of four batches three find the items' vectors there.
    assert again["ops_per_step"] == 3.0 and again["of_parameters"] and not again["is_unchanged"]
    assert 0 < again["forward_ms"] < found["ops_ms"]
    assert (sort["kind"], sort["at"]) == ("rank", places.__code__.co_firstlineno + 1)
    assert sort["times_per_step"] == 4.0


def test_a_metric_of_scores_without_a_graph_need_not_be_computed_without_gradients() -> None:
    def evaluated_by_a_trainer() -> None:
        for users in USERS:
            with torch.no_grad():
                made = scores(users)
            order = made.argsort(dim=1, descending=True)
            (order == TARGETS[:, None]).nonzero()

    (sort,) = watched(evaluated_by_a_trainer)["equivalents"]
    assert (sort["kind"], sort["times_per_step"]) == ("rank", 4.0)


def test_the_steps_own_operators_are_looked_at_in_other_windows() -> None:
    found = watched(lambda: None)
    assert found["rows"] == [] and found["equivalents"] == []


def test_a_long_evaluation_is_looked_at_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count(0, 1_000_000_000)
    monkeypatch.setattr(between_steps, "_clock", seconds.__next__)
    found = watched(evaluated)
    assert found["rows"] == [] and found["ops_ms"] < 10, "three operators"


def drawn() -> list[float]:
    numbers = []
    for place in range(20_000):
        numbers.append(place**0.5)
    return numbers


def lines(found: dict[str, Any]) -> dict[tuple[str, int], float]:
    """Runs, by function and line within it."""
    return {row["site"]: row["runs_per_step"] for row in found["lines"]}


def test_lines_that_compute_in_python_are_told_and_those_that_issue_operators_are_not() -> None:
    found = watched(lambda: (drawn(), evaluated()))
    assert lines(found)["drawn", 3] == 20_000
    by_operators = {("scores", 1), ("scores", 2), ("places", 1)}
    assert not by_operators & set(lines(found)) and by_operators <= set(found["ran"])
    assert found["total_ms"] > sum(row["ms_per_step"] for row in found["lines"]) > 0


def test_of_a_long_start_the_beginning_is_timed_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(between_steps, "LONGEST_NS", 0)
    found = watched(drawn)
    assert ("drawn", 3) not in lines(found) and sys.gettrace() is None


def test_a_job_that_is_traced_already_is_not_timed_by_line() -> None:
    def tracer(*_: object) -> None:
        return None

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        found = watched(drawn)
        assert found["lines"] == found["ran"] == [] and sys.gettrace() is tracer
    finally:
        sys.settrace(before)
