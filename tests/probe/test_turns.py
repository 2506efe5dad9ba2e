"""Taking turns: exactly the steps that were asked for, and an end when nobody asks any more."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfdoctor.launch.command import Command
from perfdoctor.launch.control import ControlServer, Rank, Turn
from perfdoctor.launch.job import Job, start
from perfdoctor.recording.directory import RunDirectory
from perfdoctor.recording.operators import Counters
from perfdoctor.recording.reader import ProcessFile

pytestmark = pytest.mark.e2e

TRIAL = Path(__file__).parent.parent.parent / "perfdoctor" / "gate" / "trial_job.py"


class Held:
    """A job that stands at its first step boundary."""

    def __init__(self, directory: Path) -> None:
        self.directory = RunDirectory.create(directory, "turns")
        self.server = ControlServer(self.directory.path)
        command = Command((sys.executable, str(TRIAL), "--workers", "1", "--storm", "400"), "trial")
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.job: Job = start(
            command, self.directory, windows=("counters",), output="file", environment=environment, apart=True
        )
        self.rank: Rank = self.wait(lambda: self.server.ranks and self.server.ranks[0])
        self.server.send(self.rank, {"do": "turns"})
        self.wait(lambda: self.rank.turn)

    def wait(self, ready):  # type: ignore[no-untyped-def]
        deadline = time.monotonic() + 60
        while not (found := ready()):
            assert time.monotonic() < deadline
            assert self.job.process.poll() is None, self.directory.job_output.read_text()
            self.server.poll(0.05)
        return found

    def go(self, steps: int, collect: bool = False) -> Turn:
        self.rank.turn = None
        self.server.send(self.rank, {"do": "go", "steps": steps, "collect": collect})
        turn: Turn = self.wait(lambda: self.rank.turn)
        return turn


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    held = Held(tmp_path)
    yield held
    held.server.close()
    held.job.end(1.0)


def test_a_job_takes_turns_and_leaves_when_nobody_asks_any_more(held: Held) -> None:
    at_first = held.rank.turn
    assert at_first is not None
    assert held.rank.sources == [str(TRIAL)]
    seen = [held.go(5), held.go(7), held.go(20)]
    assert [turn.steps for turn in seen] == [5, 7, 20]
    assert seen[-1].step == at_first.step + 32
    for turn in seen:
        assert 0 < turn.min_ns * turn.steps <= turn.wall_ns
        assert 0 <= turn.wait_ns < turn.wall_ns
        assert turn.rss_kb > 1000
    assert not seen[-1].busy
    # From a full collection on, the same steps make the same collections; that one is in no count and no record.
    one, other = held.go(20, collect=True), held.go(20, collect=True)
    assert one.gen0 == other.gen0 > 0
    assert (one.gen2, other.gen2) == (0, 0)
    seen.append(other)
    # Two turns on, it has stood still meanwhile: nothing comes without being asked for.
    before = seen[-1]
    held.server.poll(1.0)
    assert held.rank.turn is before
    held.server.close()
    assert held.job.process.wait(30) == 0
    (process,) = [p for p in _processes(held.directory) if p.role == "rank"]
    assert process.faults == ()
    assert all(event.site is None for event in process.full_collections)
    assert len(process.steps) == before.step
    # The window opened while turns were taken, and a second that the job was held for is in no step.
    assert isinstance(process.counters, Counters)
    assert process.counters.steps == 4
    assert process.steps["wall_us"][1:].max() < 1e6


def _processes(directory: RunDirectory):  # type: ignore[no-untyped-def]
    for path in directory.process_files():
        file = ProcessFile(path)
        file.refresh()
        yield file.recording()
