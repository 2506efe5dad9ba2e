"""What an epoch begins with: functions that return the same at each start."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from observing import line_of
from users_file import IdleLoop, UsersFile

from perfdoctor.injected._perfdoctor_probe.windows import epoch_starts
from perfdoctor.injected._perfdoctor_probe.windows.epoch_starts import STARTS, EpochStartsWindow
from perfdoctor.recording.lines import EpochStartsWindow as Seen
from perfdoctor.recording.lines import SameResult


def table(size: int) -> np.ndarray:
    return np.cumsum(np.arange(40_000, dtype=np.float32)).reshape(8, -1)[:, :size]


def _seen(starts: int, between: Any) -> list[dict[str, Any]]:
    """What is told after each of the starts."""
    loop = IdleLoop()
    window = EpochStartsWindow(UsersFile(__file__), loop, compiled=False)
    told = []
    for number in range(starts):
        window.open()
        between(number)
        loop.timeline.boundary()
        told.append(window.close(1))
    assert window.is_done == (starts >= STARTS)
    return told


def _functions(told: dict[str, Any]) -> list[str]:
    return [row["function"] for row in told["rows"]]


def test_a_function_counts_once_it_has_returned_the_same_at_another_start() -> None:
    told = _seen(3, lambda number: table(8))
    assert [_functions(one) for one in told] == [[], ["table"], ["table"]]
    (row,) = told[-1]["rows"]
    assert (told[-1]["starts"], row["calls_per_step"], row["arguments"]) == (3, 1.0, 1)


def test_what_comes_again_within_one_start_alone_does_not_count() -> None:
    assert _functions(_seen(3, lambda number: (table(8 + number), table(8 + number)))[-1]) == []


def test_many_samples_of_which_each_is_asked_for_once_are_followed_to_the_next_start() -> None:
    def evaluated(number: int) -> None:
        for index in range(40):
            table(4 + index)

    (row,) = _seen(2, evaluated)[-1]["rows"]
    assert (row["function"], row["calls_per_step"], row["arguments"]) == ("table", 40.0, 40)


def test_a_whole_data_set_of_many_megabytes_is_compared() -> None:
    waves = np.zeros((600, 8192), dtype=np.float32)
    waves[0] = np.arange(8192)

    def scaled() -> np.ndarray:
        return waves * 2

    assert _functions(_seen(2, lambda number: scaled())[-1]) == ["scaled"]


def test_a_long_start_is_followed_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epoch_starts, "LONGEST_NS", 0)
    loop = IdleLoop()
    window = EpochStartsWindow(UsersFile(__file__), loop, compiled=False)
    told = []
    for _ in range(2):
        window.open()
        table(8)
        for _ in range(5000):
            len("")
        assert sys.getprofile() is None and not window.is_gone()
        loop.timeline.boundary()
        told.append(window.close(1))
    assert _functions(told[-1]) == ["table"]


@pytest.mark.timeout(450)
@pytest.mark.parametrize("workers", ["-1", "0", "1"])
def test_a_real_job_does_not_notice(observe: Any, workers: str) -> None:
    """With workers, which are started in the midst of what is followed, too."""
    job = observe("epochs.py", workers, "70", windows="same")
    job.same()
    job.healthy()
    assert "None" in job.bare.stdout, job.bare.stderr
    assert job.rank.long_steps.length == 70 and job.rank.cycle is None
    window = job.rank.epoch_starts
    assert isinstance(window, Seen) and window.starts >= 2
    (row,) = window.rows
    assert isinstance(row, SameResult)
    assert (row.function, row.calls_per_step, row.arguments) == ("features", 1.0, 1)
    assert line_of(row.at) == "made = features(waves)[chosen], targets[chosen]"


@pytest.mark.timeout(450)
def test_what_short_epochs_begin_with_is_seen_in_whole_cycles(observe: Any) -> None:
    job = observe("epochs.py", "-1", "12", windows="same")
    assert job.rank.cycle.length == 12 and job.rank.epoch_starts is None
    assert [row.function for row in job.rank.same_results.rows] == ["features"]
