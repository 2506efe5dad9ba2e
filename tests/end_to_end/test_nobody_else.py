"""What perfdoctor writes is for its user only, and nothing of it can be reached from a network."""

from __future__ import annotations

import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from running import JOBS, TIMEOUT_S, Perfdoctor

pytestmark = pytest.mark.e2e


def _listening(process: psutil.Process) -> Iterator[str]:
    """Sockets at which the process can be reached from other machines, or by others of this one."""
    for connection in process.net_connections(kind="inet"):
        if connection.status == psutil.CONN_LISTEN or connection.type.name == "SOCK_DGRAM":
            yield f"{' '.join(process.cmdline())}: {connection.laddr}"


def _open_to_others(place: Path) -> list[str]:
    """What its group, or anybody, may do something with."""
    return [str(path) for path in (place, *place.rglob("*")) if stat.S_IMODE(path.lstat().st_mode) & 0o077]


def test_a_check_and_its_job_listen_nowhere_and_write_for_their_owner_only(perfdoctor: Perfdoctor) -> None:
    shared = perfdoctor.directory / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    words = ("--trace", "trace.json", "--runs", shared, JOBS / "train.py", "--steps", "100000")
    running = perfdoctor.start("check", *words)
    root, looks, listening, sockets = psutil.Process(running.pid), 0, set(), set()
    deadline = time.monotonic() + TIMEOUT_S
    while running.poll() is None:
        assert time.monotonic() < deadline
        for run in shared.iterdir():
            assert stat.S_IMODE(run.stat().st_mode) == 0o700
            if any(run.glob("process-*")) and (run / "control.sock").exists():
                sockets.add(stat.S_IMODE((run / "control.sock").stat().st_mode))
        for process in (root, *root.children(recursive=True)):
            with suppress(psutil.Error):
                listening.update(_listening(process))
                looks += process != root
        time.sleep(0.05)
    _, err = running.communicate()
    assert running.returncode in (0, 1, 3), err.decode()
    assert looks > 10
    assert listening == set()
    assert sockets == {0o600}
    (run,) = shared.iterdir()
    names = {path.name for path in run.iterdir()}
    assert {"run.json", "machine.json", "host.jsonl"} < names
    assert any(name.startswith("trace-") for name in names)
    assert _open_to_others(run) == []
