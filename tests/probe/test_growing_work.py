"""Operators that go through more numbers with each step, and those of which only the sizes differ."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from learning_job import UNWATCHED
from users_file import UsersFile

from perfdoctor.injected._perfdoctor_probe import timeline
from perfdoctor.injected._perfdoctor_probe.windows import repeats
from perfdoctor.injected._perfdoctor_probe.windows.repeats import RepeatsWindow

PANEL = torch.randn(500, 12, generator=torch.Generator().manual_seed(2))
WEIGHT = torch.ones(12, requires_grad=True)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each operator takes 50 us."""
    monkeypatch.setattr(repeats, "_clock", itertools.count(0, 50_000).__next__)


def watched(step: Callable[[int], torch.Tensor], most: int = 8) -> tuple[list[dict[str, Any]], int]:
    """What grew, and how many steps were looked at."""
    clock = SimpleNamespace(step=7, stack=[timeline.OTHER], spent=[0] * timeline.PARTS)
    loop = SimpleNamespace(timeline=clock, on_batch=None)
    window = RepeatsWindow(UsersFile(__file__), loop, compiled=False, evaluation=UNWATCHED)
    window.open()
    steps = 0
    while steps < most and (not steps or window.stays(steps)):
        (step(steps) * WEIGHT).sum().backward()
        clock.step += 1
        steps += 1
    return window.close(steps)["growing"], steps


def so_far(step: int) -> torch.Tensor:
    known = PANEL[: 100 + step]
    return known.std(0)


def in_two_operators(step: int) -> torch.Tensor:
    known = PANEL[: 100 + 5 * step]
    centred = known - known.mean(0)
    return centred.square().mean(0)


KEPT: list[torch.Tensor] = []


def joined(step: int) -> torch.Tensor:
    KEPT.append(PANEL[step])
    return torch.stack(KEPT).mean(0)


@pytest.mark.parametrize(
    ("step", "operators", "more"),
    [(so_far, {"std"}, 12), (in_two_operators, {"mean", "sub", "pow"}, 60), (joined, {"stack", "mean"}, 12)],
)
def test_what_reads_further_with_each_step_is_told_by_line(
    step: Callable[[int], torch.Tensor], operators: set[str], more: int
) -> None:
    found, steps = watched(step)
    assert steps == 3
    assert {name for row in found for name in row["operators"]} == operators
    assert {row["more"] for row in found} <= {more, 12}
    lines = {row["at"] - step.__code__.co_firstlineno for row in found}
    assert lines <= {2, 3} and len(lines) == len(found)


def test_a_loop_that_takes_two_steps_for_each_is_watched_longer() -> None:
    def every_second(step: int) -> torch.Tensor:
        return so_far(step // 2) if step % 2 else PANEL[0]

    (row,), steps = watched(every_second)
    assert steps == 4 and row["operators"] == ["std"] and row["more"] == 6


def of_one_length(step: int) -> torch.Tensor:
    return PANEL[:100].std(0)


def as_it_comes(step: int) -> torch.Tensor:
    return PANEL[: (40, 90, 60, 80, 50)[step]].std(0)


def of_the_batch(step: int) -> torch.Tensor:
    return torch.randn(100 + step, 12).std(0)


def picked(step: int) -> torch.Tensor:
    return PANEL[: 100 + step][torch.arange(8)].clone().mean(0)


def shorter(step: int) -> torch.Tensor:
    return PANEL[: 100 - step].std(0)


@pytest.mark.parametrize("step", [of_one_length, as_it_comes, of_the_batch, picked, shorter])
def test_sizes_that_differ_for_another_reason_are_left_alone(step: Callable[[int], torch.Tensor]) -> None:
    assert watched(step)[0] == []
