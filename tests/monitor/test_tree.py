"""Real processes; the clock is a test's, one second a reading, so that cores are CPU seconds."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from job_script import Job, running_job

from perfdoctor.monitor import tree as tree_module
from perfdoctor.monitor.processes import read_stat, scan
from perfdoctor.monitor.tree import JobTree

pytestmark = pytest.mark.e2e

TICK_ERROR = 0.06
"""CPU seconds: a process's clock ticks are 10 ms, and a starting interpreter's first ones may fall outside."""


@pytest.fixture
def job() -> Iterator[Job]:
    with running_job() as job:
        yield job


@pytest.fixture(autouse=True)
def seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0, 1_000_000_000)
    fake = SimpleNamespace(
        perf_counter_ns=lambda: next(clock),
        clock_gettime=time.clock_gettime,
        CLOCK_BOOTTIME=time.CLOCK_BOOTTIME,
    )
    monkeypatch.setattr(tree_module, "time", fake)


@contextlib.contextmanager
def _ended_at_exit(pid: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)


def test_cpu_of_the_root_is_counted(job: Job) -> None:
    before = job.do("ready")
    tree = JobTree(job.pid)
    used = job.do("spin", 0.2) - before
    reading = tree.read()
    assert reading.cpus == pytest.approx(used, abs=TICK_ERROR)
    assert tree.pids == {job.pid}
    assert reading.rss_bytes > 0


def test_what_was_used_before_is_not_counted(job: Job) -> None:
    job.do("spin", 0.2)
    tree = JobTree(job.pid)
    assert tree.read().cpus < 0.1


def test_children_that_live_and_die_between_readings_are_counted(job: Job) -> None:
    before = job.do("ready")
    tree = JobTree(job.pid)
    job.do("child", 0.1)
    used = job.do("child", 0.1) - before
    reading = tree.read()
    assert tree.pids == {job.pid}
    assert reading.cpus == pytest.approx(used, abs=TICK_ERROR)


def test_a_child_seen_before_it_dies_is_counted_once(job: Job) -> None:
    before = job.do("ready")
    tree = JobTree(job.pid)
    job.do("keep", 0.3)
    alive = tree.read()
    assert len(tree.pids) == 2
    used = job.do("end") - before
    assert alive.cpus + tree.read().cpus == pytest.approx(used, abs=TICK_ERROR)


def test_a_child_that_was_there_first_counts_from_the_first_reading(job: Job) -> None:
    job.do("keep", 0.3)
    tree = JobTree(job.pid)
    job.do("end")
    assert tree.read().cpus < 0.2


def test_run_time_of_live_threads_is_counted(job: Job) -> None:
    tree = JobTree(job.pid)
    if tree.read().run_ns is None:
        pytest.skip("this kernel keeps no schedstat")
    job.do("spin", 0.1)
    reading = tree.read()
    assert reading.run_ns is not None
    assert reading.run_delay_ns is not None
    assert reading.run_ns >= 90_000_000
    assert reading.run_delay_ns >= 0


def test_a_process_that_never_slept_is_named_and_one_that_waits_for_its_task_is_not(job: Job) -> None:
    tree = JobTree(job.pid)
    if tree.read().run_ns is None:
        pytest.skip("this kernel keeps no schedstat")
    assert tree.read().busy == ()
    job.do("spin", 1.0)
    (awake,) = tree.read().busy
    assert awake.awake and awake.pid == job.pid and awake.cpus == pytest.approx(1.0, abs=0.1)
    assert awake.command.startswith("python")


def test_a_process_of_the_jobs_elsewhere_is_counted_with_its_children(job: Job) -> None:
    with running_job() as worker:
        tree = JobTree(job.pid)
        assert tree.read(scan()).cpus < 0.1
        tree.read(others=[worker.pid])
        assert tree.pids == {job.pid, worker.pid}
        before = worker.do("ready")
        used = worker.do("child", 0.2) - before
        assert tree.read(others=[worker.pid]).cpus == pytest.approx(used, abs=TICK_ERROR)


def test_an_orphan_in_the_jobs_session_is_found_by_a_scan(job: Job) -> None:
    tree = JobTree(job.pid)
    orphan = int(job.do("orphan", "same-session"))
    with _ended_at_exit(orphan):
        tree.read(scan())
        assert orphan in tree.pids


def test_an_orphan_seen_before_its_parent_ended_stays_ours() -> None:
    with running_job() as job:
        tree = JobTree(job.pid)
        job.do("keep", 0)
        tree.read()
        (kept,) = tree.pids - {job.pid}
        job.process.kill()
        job.process.wait()
        tree.read()
        assert tree.pids <= {kept}  # its stdin closes, so it ends soon


def test_a_child_in_a_session_of_its_own_is_ours(job: Job) -> None:
    code = (
        "import subprocess, sys\n"
        "p = subprocess.Popen([sys.executable, '-S', '-c', 'import sys; sys.stdin.read()'],"
        " stdin=subprocess.PIPE, start_new_session=True)\n"
        "print(p.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    launcher = subprocess.Popen(
        [sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert launcher.stdout is not None
    rank = int(launcher.stdout.readline())
    tree = JobTree(launcher.pid)
    assert tree.pids == {launcher.pid, rank}
    launcher.communicate()


def test_other_processes_are_not_ours(job: Job) -> None:
    with running_job() as other:
        tree = JobTree(job.pid)
        tree.read(scan())
        assert tree.pids == {job.pid}
        assert other.pid not in tree.pids
        assert os.getpid() not in tree.pids


def test_a_job_that_ended_reads_as_nothing() -> None:
    with running_job() as job:
        tree = JobTree(job.pid)
    reading = tree.read(scan())
    assert tree.pids == frozenset()
    assert reading.rss_bytes == 0
    assert reading.cpus == 0
    assert reading.run_ns is None


def test_a_root_that_never_was_reads_as_nothing() -> None:
    done = subprocess.run([sys.executable, "-S", "-c", "import os; print(os.getpid())"], capture_output=True)
    tree = JobTree(int(done.stdout))
    assert tree.read().cpus == 0
    assert tree.pids == frozenset()


def test_without_lists_of_children_a_scan_finds_them(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    real = tree_module.read_text

    def without_children(path: str) -> str:
        if path.endswith("/children"):
            raise FileNotFoundError(path)
        return real(path)

    monkeypatch.setattr(tree_module, "read_text", without_children)
    tree = JobTree(job.pid)
    job.do("keep", 0)
    tree.read()
    assert tree.pids == {job.pid}
    tree.read(scan())
    assert len(tree.pids) == 2


def test_a_name_with_blanks_and_parentheses_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "proc/42"
    folder.mkdir(parents=True)
    (folder / "stat").write_text("42 (a) (b c) S 1 42 42 0 -1 4 1 2 3 4 50 60 70 80 20 0 1 0 999 0 0\n")
    stat = read_stat(42, str(tmp_path / "proc"))
    assert stat is not None
    assert (stat.name, stat.parent, stat.session) == ("a) (b c", 1, 42)
    assert (stat.ticks, stat.children_ticks, stat.start) == (50 + 60, 70 + 80, 999)
    assert scan(tmp_path) == (stat,)
