"""Modes of the job's own are found around its passes and timed, in a job that stays as it is."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from observing import Observed, Observer, line_of
from torch.utils._python_dispatch import TorchDispatchMode

from perfdoctor.injected._perfdoctor_probe.hooks.modes import Modes
from perfdoctor.injected._perfdoctor_probe.windows import modes as window
from perfdoctor.recording.modes import Mode, ModesWindow

SILENT = ("once", "evaluating", "checkpointed")
STYLES = ("each_step", "counted", "functions", "whole", "device", "default", *SILENT)


@pytest.fixture
def seen(observe: Observer) -> Observed:
    return observe("modes.py", *STYLES, windows="sites,ops,lines")


def _timed(seen: Observed, style: str) -> Mode:
    found = seen.named(style).modes
    assert isinstance(found, ModesWindow) and found.on >= 1
    (mode,) = found.modes
    return mode


@pytest.mark.e2e
def test_the_job_counts_the_same_and_no_mode_of_ours_is_left(seen: Observed) -> None:
    seen.same()
    seen.healthy()


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("style", "name", "kind", "line"),
    [
        ("each_step", "Heard", "dispatch", "with around(step) as mode:"),
        ("counted", "FlopCounterMode", "dispatch", "with around(step) as mode:"),
        ("functions", "Called", "function", "with around(step) as mode:"),
        ("whole", "Heard", "dispatch", "with Heard():"),
        ("device", "DeviceContext", "device", ""),
        ("default", "DeviceContext", "device", 'torch.set_default_device("cpu")'),
    ],
)
def test_a_mode_is_timed_and_named_with_the_line_that_enters_it(
    seen: Observed, style: str, name: str, kind: str, line: str
) -> None:
    mode = _timed(seen, style)
    assert (mode.name, mode.kind) == (name, kind)
    assert mode.calls_per_step >= 10 and all(ms > 0 for ms in mode.ms)
    if line:
        assert line_of(mode.site) == line
    (first, *_) = seen.named(style).modes_seen
    assert first.on == first.looked >= 8


@pytest.mark.e2e
@pytest.mark.parametrize("style", SILENT)
def test_a_mode_of_one_step_of_evaluation_or_of_torchs_own_is_not_timed(seen: Observed, style: str) -> None:
    process = seen.named(style)
    assert process.modes is None
    assert all(one.on <= 1 for one in process.modes_seen)


class Slow(TorchDispatchMode):
    """Adds what it is asked about up, twice."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for _ in range(20):
            torch.add(result, 1)
        return result


def test_what_a_mode_calls_besides_is_its_own_cost_and_the_operator_itself_is_not() -> None:
    x = torch.ones(700, 700)
    timer = window.ModesWindow(SimpleNamespace(here=lambda: 4), compiled=False, kinds={Slow: "dispatch"})
    before = dict(vars(Slow))
    timer.open()
    for step in range(3):
        with Slow():
            torch.mm(x, x)
        timer.stays(step + 1)
    clock = timer.clock
    assert clock.calls == {Slow: 3}
    found = timer.close(3)
    assert dict(vars(Slow)) == before and not torch._C._len_torch_dispatch_stack()
    (mode,) = found["modes"]
    assert (found["on"], mode["calls_per_step"], mode["site"], len(mode["ms"])) == (3, 1.0, 4, 3)


def test_the_clock_gives_each_class_its_own_time_and_none_of_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0, 10, 110, 150, 170])
    monkeypatch.setattr(window, "_clock", lambda: next(times) * 1_000)
    clock = window._Clock()
    clock.enter(Slow, "mm")
    assert clock.is_work("mm")
    clock.enter(None, "mm")
    clock.leave()
    assert not clock.is_work("mm")  # once more is the mode's own affair
    clock.leave()
    assert clock.ns == {Slow: (150 - 0 - 100) * 1_000}


class _Windows:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def ask(self, name: str, first: bool = False) -> None:
        self.asked.append(name)


def _modes() -> tuple[Modes, Any, list[dict[str, Any]]]:
    records: list[dict[str, Any]] = []
    recorder = SimpleNamespace(record=lambda kind, /, **fields: records.append(fields))
    loop = SimpleNamespace(on_pass=None, quick=7, kind="optimizer", timeline=SimpleNamespace(step=0))
    return Modes(recorder, loop, _Windows(), lambda name, hook: hook), loop, records


def _steps(modes: Modes, loop: Any, last: int, is_on: Any) -> None:
    for step in range(loop.timeline.step, last):
        loop.timeline.step = step
        modes.at_tick(step, False)
        with Slow() if is_on(step) else contextlib.nullcontext():
            if loop.on_pass is not None:
                loop.on_pass()


@pytest.mark.parametrize(
    ("is_on", "asked"),
    [
        (lambda step: True, ["modes"]),
        (lambda step: step % 10 == 0, ["modes"]),
        (lambda step: step == 20, []),
        (lambda step: False, []),
    ],
    ids=["always", "every tenth step", "once", "never"],
)
def test_modes_are_timed_that_are_on_in_several_steps(is_on: Any, asked: list[str]) -> None:
    modes, loop, _ = _modes()
    _steps(modes, loop, 50, is_on)
    assert modes.windows.asked == asked
    assert loop.on_pass is None


def test_a_mode_that_has_ended_is_not_on_any_more() -> None:
    modes, loop, records = _modes()
    _steps(modes, loop, 400, lambda step: step < 30)
    assert records[0]["on"] == records[0]["looked"] >= 8
    assert records[-1]["on"] == 0 and records[-1]["looked"] >= 4


def test_whoever_is_told_of_passes_already_comes_first() -> None:
    modes, loop, _ = _modes()
    loop.on_pass = theirs = lambda: None
    _steps(modes, loop, 60, lambda step: True)
    assert loop.on_pass is theirs and modes.windows.asked == []
