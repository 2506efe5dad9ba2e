"""Which of the nodes of a job reports on it, and for how long it waits for the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest
from nodes_by_hand import STARTED, last_written, write_node, write_rank

from perfdoctor.commands import other_nodes
from perfdoctor.errors import PerfdoctorError
from perfdoctor.exits import Exit
from perfdoctor.launch.job import Ending
from perfdoctor.recording.directory import RunDirectory
from perfdoctor.recording.siblings import find
from perfdoctor.storage import copies

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


# -- in storage -------------------------------------------------------------------------------------------


class Storage:
    """Of this node's recording and of what others upload."""

    def __init__(self, place: Path) -> None:
        self.there = place / "there"
        self.there.mkdir()
        self.folder = copies.open_folder(f"file://{self.there}", "-0000aaaa")

    def own(self, ranks: dict[int, int], world: str = "2") -> RunDirectory:
        run = write_node(self.folder, "gpu-b", ranks, world=world)
        return RunDirectory(run.path.rename(self.folder / "20240301-120000-train"))

    def upload(self, host: str, ranks: dict[int, int], number: int = 1, *, over: bool = True) -> Path:
        run = write_node(self.there, host, ranks, over=over)
        return run.path.rename(self.there / f"20240301-12000{number}-train-1111bbbb")


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    storage = Storage(tmp_path)
    yield storage
    copies.close_folder(storage.folder)


def _recorded(run: RunDirectory) -> list[int]:
    return sorted(rank for part in find(run) for _, rank in part.ranks)


def test_what_other_nodes_have_uploaded_is_fetched(storage: Storage, clock: Clock) -> None:
    run, other = storage.own({0: 1_000}), storage.upload("gpu-a", {1: 1_000})
    other_nodes.gather(run, FINISHED)
    other_nodes.complete(run)
    assert _recorded(run) == [0, 1] and clock.now == 100.0
    copy = storage.folder / other.name
    assert {path.name for path in copy.iterdir()} == {path.name for path in other.iterdir()}
    assert copies.origin(copy) == f"file://{other}"


def test_to_know_who_reports_the_beginnings_of_files_are_enough(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(other_nodes, "HEAD_BYTES", 2_000)
    run, other = storage.own({1: 1_000}), storage.upload("gpu-a", {0: 1_000})
    (other / "job.out").write_bytes(b"x" * 5_000)
    other_nodes.gather(run, FINISHED)
    assert (storage.folder / other.name / "job.out").stat().st_size == 2_000
    assert other_nodes.handed_over(run, FINISHED) is Exit.OK
    assert f"later: perfdoctor report file://{other}\n" in capsys.readouterr().err
    other_nodes.complete(run)
    assert (storage.folder / other.name / "job.out").stat().st_size == 5_000


def test_a_node_that_uploads_late_is_waited_for(storage: Storage, clock: Clock) -> None:
    run = storage.own({0: 1_000})

    def upload(now: float) -> None:
        if now == 110.0:
            storage.upload("gpu-a", {1: 1_000}, over=False)
        if now == 120.0:
            facts = storage.there / "20240301-120001-train-1111bbbb/run.json"
            facts.write_text(json.dumps({**json.loads(facts.read_text()), "end": "finished"}))

    clock.at = upload
    other_nodes.gather(run, FINISHED)
    assert (_recorded(run), clock.now) == ([0, 1], 110.0)
    other_nodes.wait_for_others(run)
    assert clock.now == 120.0


def test_waiting_for_uploads_has_an_end(storage: Storage, clock: Clock) -> None:
    run = storage.own({0: 1_000})
    other_nodes.gather(run, FINISHED)
    assert (_recorded(run), clock.now) == ([0], 130.0)
    other_nodes.gather(run, Ending("interrupted"))
    assert clock.now == 130.0, "whoever interrupts it does not want to wait"


def test_a_node_in_storage_that_is_silent_after_the_end_does_not_report(storage: Storage, clock: Clock) -> None:
    run = storage.own({1: 1_000})
    dead = storage.upload("gpu-a", {0: 1_000}, over=False)
    other_nodes.gather(run, FINISHED)
    last_written(storage.folder / dead.name, datetime.fromisoformat(STARTED).timestamp() + 15.0)
    assert other_nodes.handed_over(run, FINISHED) is None
    assert clock.now == 130.0


def test_other_jobs_of_the_same_program_are_not_mixed_up(storage: Storage, clock: Clock) -> None:
    run = storage.own({0: 1_000})
    other = write_node(storage.there, "gpu-c", {1: 1_000}, MASTER_PORT="29501")
    other.path.rename(storage.there / "20240301-120002-train-2222cccc")
    other_nodes.gather(run, FINISHED)
    assert _recorded(run) == [0]


def test_storage_that_cannot_be_read_leaves_this_nodes_own_report(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = storage.own({0: 1_000})
    storage.upload("gpu-a", {1: 1_000})
    other_nodes.gather(run, FINISHED)

    def refuse(*_: object) -> bool:
        raise PerfdoctorError("cannot read s3://runs: AccessDenied", slug="storage", advice="")

    monkeypatch.setattr(other_nodes, "fetch_others", refuse)
    other_nodes.complete(run)
    assert _recorded(run) == [0]
    assert "what other nodes recorded cannot be fetched: cannot read s3://runs: AccessDenied" in capsys.readouterr().err
