"""What is seen while a job or a gate runs, by a fake clock."""

from __future__ import annotations

import io
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from perfdoctor.commands import watch
from perfdoctor.observation.watch import INTERRUPTED, Progress
from perfdoctor.recording.directory import RunDirectory
from perfdoctor.report.live import Pace, life_line

PROGRESS = Progress("observing", 12.0, 57, done=0.25)


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(watch.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_the_time_left_comes_from_how_fast_the_goal_comes_nearer() -> None:
    now = [0.0]
    pace = Pace(lambda: now[0])
    assert pace.left_s(0.0) is None
    now[0] = 30.0
    assert pace.left_s(0.1) is None
    now[0] = 40.0
    assert pace.left_s(0.1) is None
    assert pace.left_s(0.6) == pytest.approx(8.0)
    now[0] = 48.0
    assert pace.left_s(1.0) == 0


def test_the_line_says_what_goes_on_how_long_and_how_long_still() -> None:
    assert life_line("warming up", 12.3, None, None) == "warming up, 12 s so far"
    assert life_line("observing", 75, 0.42, 31.0) == "observing, 1 min 15 s so far, 42 %, about 31 s left"
    assert life_line("observing", 75, 0.999, 0.1).endswith("100 %, about 1 s left")


def test_the_seconds_of_trials_are_counted_from_the_first_one(clock: Clock) -> None:
    goal = watch._Goal(120.0)
    assert goal.reached(PROGRESS) == (0.25, None)
    trial = replace(PROGRESS, phase="trying memory.malloc", in_trials=True)
    assert goal.reached(trial) == (0.0, 120.0)
    clock.now += 90
    assert goal.reached(trial) == (0.75, 30.0)
    clock.now += 90
    assert goal.reached(trial) == (1.0, 0.0)


def test_a_job_that_runs_to_its_end_has_no_bar(clock: Clock) -> None:
    assert watch._Goal(None).reached(replace(PROGRESS, done=None)) == (None, None)


def test_a_gate_counts_pairs_and_never_says_more_than_its_budget(clock: Clock) -> None:
    pairs = watch._Pairs(600.0)
    clock.now += 60
    assert pairs.line() == "comparing, 1 min 00 s so far, 0 %"
    pairs(2, 8)
    assert pairs.line() == "comparing, 2 of 8 pairs, 1 min 00 s so far, 25 %, about 3 min 00 s left"
    clock.now += 30
    assert pairs.reached() == (0.25, 150.0)
    clock.now += 400
    pairs(3, 8)
    assert pairs.reached() == (0.375, 110.0)
    console = Console(file=io.StringIO(), width=100, record=True)
    console.print(pairs.bar())
    assert "perfdoctor: comparing, 3 of 8 pairs" in console.export_text()


def lines_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


class Bell(threading.Event):
    """Seconds pass when it is rung."""

    def __init__(self) -> None:
        super().__init__()
        self.rung, self.waiting = threading.Semaphore(0), threading.Semaphore(0)

    def wait(self, timeout: float | None = None) -> bool:
        self.waiting.release()
        self.rung.acquire()
        return self.is_set()

    def set(self) -> None:
        super().set()
        self.rung.release()

    def ring(self) -> None:
        """The line is written when this returns."""
        self.waiting.acquire()
        self.rung.release()
        self.waiting.acquire()
        self.waiting.release()


@pytest.fixture
def bell(monkeypatch: pytest.MonkeyPatch) -> Bell:
    bell = Bell()
    monkeypatch.setattr(watch, "threading", SimpleNamespace(Event=lambda: bell, Thread=threading.Thread))
    return bell


def test_without_a_terminal_there_is_a_line_from_time_to_time(
    clock: Clock, bell: Bell, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with watch.watcher(RunDirectory(tmp_path), "passthrough", None) as show:
        show(replace(PROGRESS, phase=INTERRUPTED))
        show(PROGRESS)
        clock.now += 10
        bell.ring()
    captured = capsys.readouterr()
    assert captured.out == ""
    first, second = lines_of(captured.err)
    assert first == f"perfdoctor: {INTERRUPTED}"
    assert second.startswith("perfdoctor: observing, 10 s so far, 25 %")


def test_lines_for_every_n_steps_are_all_there_is_with_log_every(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before = threading.active_count()
    with watch.watcher(RunDirectory(tmp_path), "passthrough", 10) as show:
        show(PROGRESS)
        assert threading.active_count() == before, "nobody writes a line by himself"
    assert capsys.readouterr().err == ""


def test_a_gate_without_a_terminal_prints_lines_too(
    clock: Clock, bell: Bell, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not sys.stderr.isatty()
    with watch.gate_watcher(600.0) as paired:
        paired(1, 8)
        bell.ring()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("perfdoctor: comparing, 1 of 8 pairs, 0 s so far, 12 %")
