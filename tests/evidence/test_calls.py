"""Calls of wrapped functions, per steady step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from perfdoctor.evidence.memory import calls, calls_of_each_step
from perfdoctor.evidence.model import Site
from perfdoctor.evidence.steady import Selection
from perfdoctor.recording.model import ProcessRecording
from perfdoctor.recording.process import Call

HOOK = Site("train.py", 3, "main")


def told(*some: tuple[int, int, int]) -> tuple[ProcessRecording, Selection]:
    """Calls up to a step: how many, and what they took in milliseconds."""
    made = tuple(Call("debug.frame", count, 1000 * ms, step, HOOK) for step, count, ms in some)
    process = SimpleNamespace(calls=made)
    return cast(ProcessRecording, process), cast(Selection, SimpleNamespace(first=10, span=20))


def summed(found: tuple[Any, ...]) -> list[tuple[float, float]]:
    return [(call.calls_per_step, call.ms_per_step) for call in found]


def test_calls_of_each_step_are_those_in_the_middle() -> None:
    """A window makes those of two steps take eight times as long, and an evaluation makes twice as many in five."""
    steps = told((15, 185, 185), (17, 74, 592), (22, 185, 185), (25, 111, 111), (30, 370, 370))
    assert summed(calls_of_each_step(*steps, "debug.frame")) == [(37.0, 37.0)]
    assert summed(calls(*steps, "debug.frame")) == [(46.25, 72.15)]


def test_calls_before_the_steady_steps_and_of_other_kinds_do_not_count() -> None:
    assert calls_of_each_step(*told((10, 37, 900)), "debug.frame") == ()
    assert calls_of_each_step(*told((15, 185, 185)), "save") == ()
