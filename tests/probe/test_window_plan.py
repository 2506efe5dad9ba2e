"""Which steps the windows see."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import pytest

from perfdoctor.injected._perfdoctor_probe.windows.schedule import FIRST_STEP, GAP, STEPS, Windows

SHORT_NS = 1_000_000


class Window:
    microbenchmark = final_microbenchmark = None

    def __init__(self, name: str) -> None:
        self.name = name

    def obstacle(self) -> str:
        return ""

    def open(self) -> None:
        pass

    def closable(self) -> bool:
        return True

    def is_gone(self) -> bool:
        return False

    def abandon(self) -> None:
        pass

    def close(self, steps: int) -> dict:
        return {"steps": steps}


class Recorder:
    def __init__(self) -> None:
        self.records: list[dict] = []

    def record(self, kind: str, /, **fields) -> None:
        self.records.append(json.loads(json.dumps(fields)))

    def first(self, name: str) -> list[int]:
        return [record["first_step"] for record in self.records if record["name"] == name]


@pytest.fixture
def plan() -> tuple[Windows, Recorder]:
    def fault(hook: str, error: Exception) -> None:
        raise error

    recorder = Recorder()
    return Windows(recorder, Window, fault, ["sites", "ops"]), recorder


def _steps(windows: Windows, first: int, last: int) -> None:
    for step in range(first, last):
        windows.at_boundary(step, SHORT_NS)


def test_windows_open_in_order_once_the_job_is_warm(plan: tuple[Windows, Recorder]) -> None:
    windows, recorder = plan
    _steps(windows, 1, 40)
    assert recorder.first("sites") == [FIRST_STEP]
    assert recorder.first("ops") == [FIRST_STEP + STEPS + GAP]
    assert not windows.busy


def test_steps_of_another_kind_are_looked_at_again(plan: tuple[Windows, Recorder]) -> None:
    """An agent acts 96 times before it learns for the first time."""
    windows, recorder = plan
    _steps(windows, 1, 97)
    windows.replan(96)
    _steps(windows, 97, 140)
    assert recorder.first("sites") == [FIRST_STEP, 96 + FIRST_STEP]
    assert len(recorder.first("ops")) == 2
    assert not windows.busy


def test_a_window_that_is_open_meanwhile_is_given_up_and_taken_again(plan: tuple[Windows, Recorder]) -> None:
    windows, recorder = plan
    _steps(windows, 1, FIRST_STEP + 1)
    windows.replan(FIRST_STEP)
    assert windows.open is None
    _steps(windows, FIRST_STEP + 1, 60)
    assert recorder.first("sites") == [2 * FIRST_STEP]
    assert recorder.first("ops") == [2 * FIRST_STEP + STEPS + GAP]


class Asking(Window):
    """One that two others are to follow, each of which stays open for eight steps."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        if name == "ops":
            self.asks = ("gradients", "tracing")
        if name in ("gradients", "tracing"):
            self.stays = lambda steps: steps < 8


def test_windows_that_one_asks_for_follow_it_and_stay_open_as_long_as_they_want() -> None:
    def fault(hook: str, error: Exception) -> None:
        raise error

    recorder = Recorder()
    windows = Windows(recorder, Asking, fault, ["ops", "lines"])
    _steps(windows, 1, 60)
    steps = {record["name"]: record["steps"] for record in recorder.records}
    assert steps == {"ops": STEPS, "gradients": 8, "tracing": 8, "lines": STEPS}
    assert [record["name"] for record in recorder.records] == ["ops", "gradients", "tracing", "lines"]


class WithinAStep(Window):
    """One that looks at what is between two boundaries."""

    steps = 1
    within_a_step = True


def test_a_window_that_opens_in_the_middle_of_a_step_closes_at_its_end_and_is_not_taken_again() -> None:
    def fault(hook: str, error: Exception) -> None:
        raise error

    recorder = Recorder()
    windows = Windows(recorder, WithinAStep, fault, [])
    _steps(windows, 1, 5)
    windows.open_within("evaluation", 4)
    assert windows.busy
    windows.at_boundary(5, SHORT_NS)
    assert recorder.records == [{"name": "evaluation", "first_step": 4, "steps": 1}]
    assert windows.marked == [4, 5] and not windows.busy
    windows.open_within("evaluation", 8)
    windows.abandon(8, "the loop starts processes in every step", again=True)
    assert not windows.busy and recorder.records[1]["missing"]


class OfSomeSteps(WithinAStep):
    """One that is to see two of the steps that come again."""

    may_close_early = True
    seen = 0

    def close(self, steps: int) -> dict:
        self.seen += 1
        return super().close(steps)

    @property
    def is_done(self) -> bool:
        return self.seen == 2


def _appointed() -> tuple[Windows, Recorder]:
    def fault(hook: str, error: Exception) -> None:
        raise error

    recorder, window = Recorder(), OfSomeSteps("epochs")
    windows = Windows(recorder, lambda name: window if name == "epochs" else Window(name), fault, ["ops"])
    windows.appoint(["epochs"], 27, 27)
    return windows, recorder


def test_a_window_sees_the_steps_that_come_again_until_it_is_done() -> None:
    windows, recorder = _appointed()
    _steps(windows, 30, 200)
    assert recorder.first("epochs") == [54, 81]
    assert not windows.busy


def test_where_another_one_is_open_then_the_next_such_step_is_waited_for() -> None:
    windows, recorder = _appointed()
    _steps(windows, 53, 54)
    windows.open_within("ops", 53)
    windows.length = 2
    _steps(windows, 54, 200)
    assert recorder.first("epochs") == [81, 108]


def test_where_the_step_starts_processes_it_tells_what_it_has_seen_and_comes_again() -> None:
    windows, recorder = _appointed()
    _steps(windows, 50, 55)
    windows.abandon(54, "the loop starts processes in every step", again=True)
    assert recorder.first("epochs") == [54] and windows.open is None
    _steps(windows, 55, 90)
    assert recorder.first("epochs") == [54, 81]


class Leavable(Window):
    """One that says on which threads it was left."""

    left_on: list[int]

    def abandon(self) -> None:
        self.left_on.append(threading.get_ident())


def _on_another_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_where_the_loop_goes_on_in_another_thread_the_window_is_left_on_its_own(plan: tuple[Windows, Recorder]) -> None:
    windows, recorder = plan
    window = Leavable("sites")
    window.left_on = []
    windows.make = lambda name: window if name == "sites" else Window(name)
    _steps(windows, 1, FIRST_STEP + 1)
    assert windows.watches
    _on_another_thread(lambda: _steps(windows, FIRST_STEP + 1, 40))
    assert recorder.records[0]["name"] == "sites" and "another thread" in recorder.records[0]["missing"]
    assert [one for one in recorder.records if one["name"] == "ops"] and not windows.busy and not windows.watches
    assert windows.marked.count(30) == 0, "steps after it count"
    # It waits for a forward pass of the thread that it was opened on.
    _on_another_thread(lambda: windows.leave_behind(threading.get_ident()))
    assert window.left_on == []
    windows.leave_behind(threading.get_ident())
    windows.leave_behind(threading.get_ident())
    assert window.left_on == [threading.get_ident()]
