"""Whose file is read while the job runs."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from recordings import process, write

from perfdoctor.launch.control import ControlServer, Rank
from perfdoctor.launch.job import Ending
from perfdoctor.observation.enough import Goal
from perfdoctor.observation.observed_job import ObservedJob
from perfdoctor.observation.watch import Progress, _Watch, observe
from perfdoctor.recording.directory import RunDirectory


def _lead(directory: Path) -> str:
    """Of a job whose rank 7 has said who it is."""
    over: dict[str, Any] = {"poll": lambda: 0, "ended_by_itself": lambda status: Ending("finished", status)}
    job: Any = SimpleNamespace(pid=os.getpid(), started=0.0, directory=RunDirectory(directory), **over)
    server = ControlServer(directory)
    server.ranks.append(Rank(socket.socket(), pid=7))
    sampler: Any = SimpleNamespace(latest=None)
    shown: list[Progress] = []
    observe(ObservedJob(job, server, sampler), Goal(None, None, 60.0, True, ()), shown.append)
    assert shown[-1].rows is not None
    return shown[-1].rows.path.name


def test_a_process_of_another_machine_with_the_same_number_is_not_the_lead_rank(tmp_path: Path) -> None:
    write(tmp_path, process(7, host=os.uname().nodename), pid=7, t=1)
    write(tmp_path, process(7, host="elsewhere"), pid=7, t=2)
    assert _lead(tmp_path) == "process-7-1.jsonl"


def test_a_rank_that_speaks_from_another_machine_may_lead(tmp_path: Path) -> None:
    write(tmp_path, process(7, host="elsewhere"), pid=7, t=2)
    assert _lead(tmp_path) == "process-7-2.jsonl"


def test_ranks_that_an_engine_starts_anew_are_followed(tmp_path: Path) -> None:
    job: Any = SimpleNamespace(poll=lambda: None, directory=RunDirectory(tmp_path))
    server = ControlServer(tmp_path)
    watch = _Watch(ObservedJob(job, server, SimpleNamespace()), Goal(None, None, 60.0, False, ()))  # type: ignore[arg-type]

    def lead(*pids: int) -> str:
        server.ranks[:] = [Rank(socket.socket(), pid=pid) for pid in pids]
        watch.read_on()
        assert watch.lead is not None
        return watch.lead.path.name

    write(tmp_path, process(7), pid=7, t=1)
    write(tmp_path, process(8), pid=8, t=1)
    assert lead(7, 8) == lead(8, 7) == lead() == "process-7-1.jsonl"
    write(tmp_path, process(9), pid=9, t=2)
    before = watch.seen
    assert lead(0) == "process-7-1.jsonl", "it has not said who it is"
    assert lead(9, 0) == "process-7-1.jsonl", "nor has the other"
    assert lead(9) == "process-9-2.jsonl"
    assert watch.seen is not before, "what was seen of the first attempt counts for nothing"
