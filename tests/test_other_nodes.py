"""Which of the nodes of a job reports on it, and for how long it waits for the others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from nodes_by_hand import write_node, write_rank

from perfdoctor.commands import other_nodes
from perfdoctor.exits import Exit
from perfdoctor.launch.job import Ending
from perfdoctor.recording.directory import RunDirectory

FINISHED = Ending("finished", 0)


class Clock:
    """Seconds that pass only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.at: Callable[[float], None] = lambda now: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.at(self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(other_nodes, "time", clock)
    return clock


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        (FINISHED, Exit.OK),
        (Ending("stopped"), Exit.OK),
        (Ending("crashed", 1), Exit.JOB_FAILED),
        (Ending("killed", signal=9), Exit.JOB_FAILED),
        (Ending("timeout"), Exit.NOT_MEASURABLE),
    ],
)
def test_the_node_without_rank_0_says_who_reports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ending: Ending, code: Exit
) -> None:
    first = write_node(tmp_path, "gpu-a", {0: 1_000, 1: 1_000}, world="4")
    second = write_node(tmp_path, "gpu-b", {2: 1_000, 3: 1_000}, world="4")
    assert other_nodes.handed_over(second, ending) is code
    told = capsys.readouterr().err.splitlines()
    assert told[0] == (
        "perfdoctor: ranks 2 and 3 recorded; the node with rank 0 reports on the whole job, later: "
        f"perfdoctor report {first.path}"
    )
    assert len(told) == (2 if code is Exit.JOB_FAILED else 1)
    assert other_nodes.handed_over(first, ending) is None


@pytest.mark.parametrize("ending", [FINISHED, Ending("crashed", 1)])
def test_where_the_node_with_rank_0_is_lost_the_next_one_reports(tmp_path: Path, clock: Clock, ending: Ending) -> None:
    write_node(tmp_path, "gpu-a", {0: 1_000}, world="6", LOCAL_WORLD_SIZE="2", over=False)
    second = write_node(tmp_path, "gpu-b", {2: 1_000}, world="6", LOCAL_WORLD_SIZE="2")
    third = write_node(tmp_path, "gpu-c", {4: 1_000}, world="6", LOCAL_WORLD_SIZE="2")
    assert other_nodes.handed_over(second, ending) is None
    assert other_nodes.handed_over(third, ending) is not None
    assert clock.now == (100.0 if ending is FINISHED else 120.0), "a job that failed may have lost that node just now"


def test_a_node_alone_reports_whatever_its_ranks(tmp_path: Path) -> None:
    assert other_nodes.handed_over(write_node(tmp_path, "gpu-b", {1: 1_000}), FINISHED) is None


def test_nodes_that_have_ended_are_not_waited_for(tmp_path: Path, clock: Clock) -> None:
    run = write_node(tmp_path, "gpu-a", {0: 1_000})
    write_node(tmp_path, "gpu-b", {1: 1_000})
    other_nodes.wait_for_others(run)
    assert clock.now == 100.0


def test_a_node_is_waited_for_until_it_says_how_the_job_ended(tmp_path: Path, clock: Clock) -> None:
    run = write_node(tmp_path, "gpu-a", {0: 1_000})
    other = write_node(tmp_path, "gpu-b", {1: 1_000}, over=False)

    def record(now: float) -> None:
        other.host_file.write_text(str(now))
        if now >= 115.0:
            other.run_file.write_text(json.dumps({**json.loads(other.run_file.read_text()), "end": "finished"}))

    clock.at = record
    other_nodes.wait_for_others(run)
    assert clock.now == 115.0


@pytest.mark.parametrize(("records", "waited_s"), [(False, 10.0), (True, 60.0)], ids=["dead", "goes on"])
def test_waiting_for_a_node_has_an_end(tmp_path: Path, clock: Clock, records: bool, waited_s: float) -> None:
    run = write_node(tmp_path, "gpu-a", {0: 1_000})
    other = write_node(tmp_path, "gpu-b", {1: 1_000}, over=False)
    clock.at = lambda now: write_rank(other.path, 1, header={"t": round(now * 4)}) if records else None
    other_nodes.wait_for_others(run)
    assert clock.now == 100.0 + waited_s


def test_ctrl_c_ends_the_waiting(tmp_path: Path, clock: Clock) -> None:
    run: RunDirectory = write_node(tmp_path, "gpu-a", {0: 1_000})
    write_node(tmp_path, "gpu-b", {1: 1_000}, over=False)

    def interrupt(now: float) -> None:
        raise KeyboardInterrupt

    clock.at = interrupt
    other_nodes.wait_for_others(run)
    assert clock.now == 100.25
