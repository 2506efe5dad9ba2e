from __future__ import annotations

import itertools
import os
from dataclasses import replace
from types import SimpleNamespace

import pytest
from job_script import running_job

from perfdoctor.monitor import neighbours as module
from perfdoctor.monitor.neighbours import MOST_LISTED, Neighbours, describe
from perfdoctor.monitor.processes import TICKS_PER_SECOND, ProcessStat, scan
from perfdoctor.recording.host import NeighbourSample

IDLE = ProcessStat(0, "made-up", 1, 1, 1, 0, 0, 10)
MANY_TICKS = 1000 * TICKS_PER_SECOND
"""1000 CPU seconds: many cores however long the test takes."""


def _stat(pid: int, ticks: int) -> ProcessStat:
    return replace(IDLE, pid=pid, ticks=ticks)


def _only(pid: int) -> list[ProcessStat]:
    """A scan of a machine whose other processes are quiet."""
    return [stat for stat in scan() if stat.pid == pid]


def _pids(reading: NeighbourSample) -> list[int]:
    return [process.pid for process in reading.top]


def test_a_real_neighbour_is_named_by_its_program_and_user(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count(0, 1_000_000_000)  # one a reading, so that cores are CPU seconds
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter_ns=lambda: next(seconds)))
    with running_job() as neighbour:
        neighbours = Neighbours(_only(neighbour.pid))
        neighbour.do("spin", 0.3)
        reading = neighbours.read(_only(neighbour.pid), ours=())
    found = {process.pid: process for process in reading.top}
    assert neighbour.pid in found
    assert found[neighbour.pid].command.startswith("python")
    assert "import" not in found[neighbour.pid].command
    assert found[neighbour.pid].user
    assert found[neighbour.pid].cpus == pytest.approx(0.3, abs=0.06), "ticks are 10 ms"
    assert reading.interval_ns == 1_000_000_000


def test_the_job_and_perfdoctor_are_no_neighbours() -> None:
    neighbours = Neighbours([])
    busy = [_stat(pid, MANY_TICKS) for pid in (os.getpid(), 7, 8)]
    assert _pids(neighbours.read(busy, ours={7})) == [8]


def test_idle_processes_are_left_out() -> None:
    neighbours = Neighbours([_stat(7, 500), _stat(8, 500)])
    assert _pids(neighbours.read([_stat(7, 500), _stat(8, 500 + MANY_TICKS)], ours=())) == [8]


def test_only_the_largest_are_listed_largest_first() -> None:
    neighbours = Neighbours([])
    busy = [_stat(pid, MANY_TICKS * pid) for pid in range(1, MOST_LISTED + 3)]
    ours = {os.getpid()}
    assert _pids(neighbours.read(busy, ours)) == list(range(MOST_LISTED + 2, 2, -1))


def test_a_pid_used_again_starts_from_nothing() -> None:
    neighbours = Neighbours([_stat(7, 2 * MANY_TICKS)])
    assert _pids(neighbours.read([replace(_stat(7, MANY_TICKS), start=99)], ours=())) == [7]


@pytest.mark.parametrize(
    ("name", "arguments", "shown"),
    [
        ("python3", ["/usr/bin/python3", "/home/me/train.py", "--token", "SECRET"], "python3 train.py"),
        ("python3.11", ["python3.11", "-u", "-m", "pkg.train", "SECRET"], "python3.11 -m pkg.train"),
        ("python3", ["python3", "-X", "dev", "-Wd", "a.py", "SECRET"], "python3 a.py"),
        ("python3", ["python3", "-W", "error", "a.py"], "python3 a.py"),
        ("python3", ["python3", "-c", "key='SECRET'"], "python3"),
        ("python3", ["python3", "-uc", "key='SECRET'"], "python3"),
        ("python3", ["python3", "-"], "python3"),
        ("train.py", ["/usr/bin/python3", "./train.py", "SECRET"], "python3 train.py"),
        ("bash", ["bash", "-c", "SECRET"], "bash"),
        ("bash", ["/bin/bash", "/opt/run.sh", "SECRET"], "bash run.sh"),
        ("node", ["node", "--token", "SECRET", "app.js"], "node"),
        ("curl", ["curl", "-H", "Authorization: SECRET"], "curl"),
        ("postgres", ["postgres: user SECRET"], "postgres"),
        ("gnome-terminal-", ["/usr/libexec/gnome-terminal-server", "SECRET"], "gnome-terminal-server"),
        ("a-worker-with-a", ["a-worker-with-a title SECRET"], "a-worker-with-a"),
        ("kswapd0", [""], "kswapd0"),
        ("gone", [], "gone"),
    ],
)
def test_a_command_shows_its_script_and_never_an_argument(name: str, arguments: list[str], shown: str) -> None:
    assert describe(name, arguments) == shown


def test_a_long_command_is_cut() -> None:
    assert len(describe("python3", ["python3", "x" * 500])) == 80
