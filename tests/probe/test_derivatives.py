"""Derivatives that one pass could compute together: which calls count, and that nobody notices."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from users_file import UsersFile

from perfdoctor.injected._perfdoctor_probe import timeline
from perfdoctor.injected._perfdoctor_probe.windows import derivatives, issued
from perfdoctor.injected._perfdoctor_probe.windows.repeats import RepeatsWindow

STEPS = 3


class Sites(UsersFile):
    """Lines of this file are the user's."""

    def here(self, depth: int) -> int:
        return next(line for file, line, _ in self.stack(sys._getframe(depth)) if file == __file__)


def _network() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(2, 256), torch.nn.Tanh(), torch.nn.Linear(256, 256), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(256, 2))


NETWORK = _network()


def _points() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(2000, 1, generator=generator).requires_grad_() for _ in range(2)]


def _field(points: list[torch.Tensor]) -> torch.Tensor:
    return NETWORK(torch.cat(points, 1))


def watched(step: Callable[[], torch.Tensor]) -> list[dict[str, Any]]:
    """What was found in steps that each end in a backward pass."""
    clock = SimpleNamespace(step=7, stack=[timeline.OTHER], spent=[0] * timeline.PARTS)
    window = RepeatsWindow(
        Sites(__file__), SimpleNamespace(timeline=clock), compiled=False, evaluation=SimpleNamespace(on_scores=None)
    )
    window.open()
    try:
        for _ in range(STEPS):
            step().sum().backward()
            clock.step += 1
    finally:
        found: list[dict[str, Any]] = window.close(STEPS)["derivatives"]
    NETWORK.zero_grad()
    return found


def one_by_one() -> torch.Tensor:
    points = _points()
    field = _field(points)
    ones = torch.ones_like(field)
    slopes = [torch.autograd.grad(field, one, ones, create_graph=True)[0] for one in points]
    return slopes[0] - slopes[1]


def of_sums() -> torch.Tensor:
    points = _points()
    field = _field(points)
    (first,) = torch.autograd.grad(field.sum(), points[0], create_graph=True)
    (second,) = torch.autograd.grad(field.sum(), points[1], create_graph=True)
    return first - second


def twice_the_same() -> torch.Tensor:
    points = _points()
    field = _field(points)
    first, second = (torch.autograd.grad(field.sum(), points[0], retain_graph=True)[0] for _ in range(2))
    return field * (first - second)


@pytest.mark.parametrize(("step", "line"), [(one_by_one, 4), (of_sums, 4), (twice_the_same, 3)])
def test_the_later_call_counts_with_what_it_would_not_take(
    step: Callable[[], torch.Tensor], line: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pass takes 100 us, by the clock."""
    monkeypatch.setattr(derivatives, "_clock", itertools.count(0, 100_000).__next__)
    (row,) = watched(step)
    assert row["at"] == step.__code__.co_firstlineno + line
    assert row["calls_per_step"] == 1.0
    assert row["saved_ms"] == row["ms_per_step"] == pytest.approx(0.1)
    assert row["created"] == (step is not twice_the_same)


def together() -> torch.Tensor:
    points = _points()
    field = _field(points)
    first, second = torch.autograd.grad(field, points, torch.ones_like(field), create_graph=True)
    return first - second


def of_different_outputs() -> torch.Tensor:
    points = _points()
    left, right = _field(points).split(1, 1)
    return (
        torch.autograd.grad(left.sum(), points[0], create_graph=True)[0]
        - (torch.autograd.grad(right.sum(), points[1], create_graph=True)[0])
    )


def weighed_otherwise() -> torch.Tensor:
    """Products of a vector with a Jacobian, for another vector each."""
    points = _points()
    field = _field(points)
    rows = [torch.autograd.grad(field, points, torch.eye(2)[number].expand(2000, 2), True)[0] for number in range(2)]
    return field[:, :1] * rows[0] * rows[1]


def second_order() -> torch.Tensor:
    points = _points()
    (slope,) = torch.autograd.grad(_field(points).sum(), points[0], create_graph=True)
    return torch.autograd.grad(slope.sum(), points[0], create_graph=True)[0]


class _Own(torch.autograd.Function):
    passes = 0

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        _Own.passes += 1
        return grad * 2


def through_the_jobs_own_code() -> torch.Tensor:
    points = _points()
    field = _Own.apply(_field(points))
    first, second = (torch.autograd.grad(field.sum(), one, retain_graph=True)[0] for one in points)
    return field * (first - second)


def told_of_each() -> torch.Tensor:
    points = _points()
    for one in points:
        one.register_hook(lambda grad: grad)
    field = _field(points)
    first, second = (torch.autograd.grad(field.sum(), one, retain_graph=True)[0] for one in points)
    return field * (first - second)


@pytest.mark.parametrize(
    "step",
    [together, of_different_outputs, weighed_otherwise, second_order, through_the_jobs_own_code, told_of_each],
    ids=lambda step: step.__name__,
)
def test_what_no_other_call_could_do_or_nobody_may_try_is_left_alone(step: Callable[[], torch.Tensor]) -> None:
    _Own.passes = 0
    assert watched(step) == []
    assert _Own.passes == (3 * STEPS if step is through_the_jobs_own_code else 0)


@pytest.mark.parametrize("step", [one_by_one, of_sums, weighed_otherwise])
def test_the_job_computes_what_it_would_have(step: Callable[[], torch.Tensor]) -> None:
    expected, made = step().tolist(), []
    assert torch.autograd._engine_run_backward.__module__ == "torch.autograd.graph"
    watched(lambda: made.append(step()) or made[-1])
    assert [one.tolist() for one in made] == [expected] * STEPS
    assert torch.autograd._engine_run_backward.__module__ == "torch.autograd.graph"


class _Asked(torch.autograd.Function):
    answers: list[bool] = []  # noqa: RUF012

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        _Asked.answers.append(issued._derives(sys._getframe()))
        return grad * 2


def test_a_pass_that_is_asked_for_derivatives_is_no_backward_pass_of_the_step() -> None:
    x = torch.ones(3, requires_grad=True)
    torch.autograd.grad(_Asked.apply(x).sum(), x)
    _Asked.apply(x).sum().backward()
    torch.autograd.backward(_Asked.apply(x).sum())
    assert _Asked.answers == [True, False, False]
