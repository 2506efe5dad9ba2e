"""Which ranks a report is about where Ray has placed several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import recordings

from perfdoctor.recording.model import Recording
from perfdoctor.recording.ray import unseen
from perfdoctor.recording.reader import read


def _rank(pid: int, steps: int, t: int = 1, boot: str = "here", **ray: Any) -> list[recordings.Record]:
    return [
        recordings.process(pid, t=t, boot=boot),
        recordings.torch(),
        {"k": "steps", "first": 0, "n": steps, "t": 10**9, "wall_us": 1000, "micro": 1},
        *([{"k": "ray", **ray}] if ray else []),
    ]


def _recording(directory: Path, *processes: list[recordings.Record]) -> Recording:
    for lines in processes:
        recordings.write(directory, *lines, pid=lines[0]["pid"])
    return read(recordings.write_run(directory))


def test_of_several_trials_the_one_with_most_steps_is_judged(tmp_path: Path) -> None:
    trials = (_rank(1, 50, run="trial_a", group="a"), _rank(2, 90, run="trial_b", group="b"))
    recording = _recording(tmp_path, *trials)
    assert [rank.header.pid for rank in recording.ranks] == [2]
    (note,) = recording.problems
    assert "2 trainings ran under Ray" in note
    assert "about trial_b" in note
    assert "not about trial_a" in note


def test_of_several_attempts_the_last_is_judged(tmp_path: Path) -> None:
    failed = [_rank(pid, 90, 10, run="fit", group="a") for pid in (1, 2)]
    last = [_rank(pid, 20, 20, run="fit", group="b") for pid in (3, 4)]
    recording = _recording(tmp_path, *last, *failed)
    assert sorted(rank.header.pid for rank in recording.ranks) == [3, 4]
    assert recording.problems == (
        "Ray started the ranks of this training 2 times: the report is about the last attempt",
    )


def test_clocks_of_two_machines_do_not_decide_which_attempt_was_last(tmp_path: Path) -> None:
    failed = [_rank(1, 90, 10, run="fit", group="a"), _rank(2, 90, 9000, "there", run="fit", group="a")]
    last = [_rank(3, 20, 20, run="fit", group="b"), _rank(4, 20, 30, run="fit", group="b")]
    assert sorted(rank.header.pid for rank in _recording(tmp_path, *failed, *last).ranks) == [3, 4]


def test_the_machine_that_saw_most_attempts_knows_the_last(tmp_path: Path) -> None:
    """The other one was lost, and the training went on without it."""
    failed = [_rank(1, 90, 10, run="fit", group="a"), _rank(2, 90, 9000, "there", run="fit", group="a")]
    last = _rank(3, 20, 20, run="fit", group="b")
    recording = _recording(tmp_path, last, *failed)
    assert [rank.header.pid for rank in recording.ranks] == [3]


def test_ranks_of_one_training_and_those_outside_ray_stay_together(tmp_path: Path) -> None:
    recording = _recording(tmp_path, _rank(1, 9, run="fit", group="a"), _rank(2, 9, run="fit", group="a"), _rank(3, 9))
    assert len(recording.ranks) == 3
    assert recording.problems == ()


@pytest.mark.parametrize(("how", "word"), [("client", "ray://"), ("uv", "uv run"), ("submitted", "ray job submit --")])
def test_workers_that_no_probe_reaches_are_told_of(tmp_path: Path, how: str, word: str) -> None:
    driver = [recordings.process(1), {"k": "ray", "unseen": how}]
    missing = unseen(_recording(tmp_path, driver).processes)
    assert missing is not None
    assert "not observed" in missing.reason
    assert word in str(missing)


def test_a_driver_whose_workers_were_seen_has_nothing_to_tell(tmp_path: Path) -> None:
    driver = [recordings.process(1), {"k": "ray", "unseen": "uv"}]
    recording = _recording(tmp_path, driver, _rank(2, 9, run="fit", group="a"))
    assert recording.problems == ()
