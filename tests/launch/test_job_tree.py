"""A job ends with all its processes, and nobody else's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from perfdoctor.launch.tree import JobProcesses, reap

pytestmark = pytest.mark.e2e

SLEEP = "import time; time.sleep(600)"
IGNORES = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
SESSIONS = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {SLEEP!r}], start_new_session=True)
print(child.pid, flush=True)
"""
"""Starts a process that leaves the session, as torchrun does, and ends: an orphan."""


def _start(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def _gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.fixture
def neighbour() -> Iterator[subprocess.Popen[str]]:
    """A child of ours from before the job."""
    process = _start(SLEEP)
    yield process
    process.kill()
    process.communicate()


def test_a_job_ends_with_its_orphans_but_without_our_other_children(neighbour: subprocess.Popen[str]) -> None:
    processes = JobProcesses()
    job = _start(SESSIONS + SLEEP)
    assert job.stdout is not None
    orphan = int(job.stdout.readline())
    assert {process.pid for process in processes.living()} == {job.pid, orphan}
    processes.end(job.pid, grace_s=30)
    assert job.wait(5) == -signal.SIGTERM
    assert _gone(orphan)
    assert neighbour.poll() is None
    job.communicate()


def test_what_ignores_sigterm_is_killed() -> None:
    processes = JobProcesses()
    job = _start(IGNORES)
    assert job.stdout is not None
    job.stdout.readline()
    processes.end(job.pid, grace_s=0.05)
    assert job.wait(5) == -signal.SIGKILL
    job.communicate()


STARTS_AGAIN = f"""
import subprocess, sys
while True:
    child = subprocess.Popen([sys.executable, "-c", {SLEEP!r}])
    print(child.pid, flush=True)
    child.wait()
    print("a worker failed", flush=True)
"""
"""As an engine does with what it takes for a failure."""


def test_nobody_sees_the_others_die_where_all_are_killed_at_once() -> None:
    processes = JobProcesses()
    job = _start(STARTS_AGAIN)
    assert job.stdout is not None
    worker = int(job.stdout.readline())
    processes.kill(job.pid)
    assert job.wait(5) == -signal.SIGKILL
    assert _gone(worker)
    said, _ = job.communicate()
    assert said == ""


def test_orphans_come_to_us_and_are_reaped_but_the_job_is_left_to_its_owner() -> None:
    processes = JobProcesses()
    job = _start(SESSIONS)
    assert job.stdout is not None
    orphan = int(job.stdout.readline())
    os.waitid(os.P_PID, job.pid, os.WEXITED | os.WNOWAIT)
    reap(job.pid)
    assert job.wait(5) == 0
    assert psutil.Process(orphan).ppid() == os.getpid()
    os.kill(orphan, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while psutil.pid_exists(orphan) and time.monotonic() < deadline:
        reap(job.pid)
    assert not psutil.pid_exists(orphan)
    assert processes.living() == []
    job.communicate()


def test_nothing_to_reap_is_no_error() -> None:
    before = psutil.Process().children()
    reap(0)
    assert psutil.Process().children() == before
