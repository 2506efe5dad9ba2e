"""Whose file is read while the job runs."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from recordings import process, write

from perfdoctor.launch.control import Rank
from perfdoctor.launch.job import Ending
from perfdoctor.observation.enough import Goal
from perfdoctor.observation.observed_job import ObservedJob
from perfdoctor.observation.watch import Progress, observe
from perfdoctor.recording.directory import RunDirectory


def test_a_process_of_another_machine_with_the_same_number_is_not_the_lead_rank(tmp_path: Path) -> None:
    write(tmp_path, process(7, host=os.uname().nodename), pid=7, t=1)
    write(tmp_path, process(7, host="elsewhere"), pid=7, t=2)
    over: dict[str, Any] = {"poll": lambda: 0, "ended_by_itself": lambda status: Ending("finished", status)}
    job: Any = SimpleNamespace(pid=1, started=0.0, directory=RunDirectory(tmp_path), **over)
    server: Any = SimpleNamespace(
        ranks=[Rank(socket.socket(), pid=7)], problem="", poll=lambda timeout_s: None, wake_at_end=lambda pid: None
    )
    sampler: Any = SimpleNamespace(latest=None)
    shown: list[Progress] = []
    observe(ObservedJob(job, server, sampler), Goal(None, None, 60.0, True, ()), shown.append)
    assert shown[-1].rows is not None
    assert shown[-1].rows.path.name == "process-7-1.jsonl"
