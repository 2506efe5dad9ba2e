"""When things go wrong: one clear line with what to do, the right exit code, nothing lost, nobody left behind."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from running import JOBS, Checked, Perfdoctor, Started

from perfdoctor.config.settings import Config
from perfdoctor.launch.command import script, verbatim
from perfdoctor.launch.control import ControlServer
from perfdoctor.monitor.cgroup import Cgroups
from perfdoctor.observation.session import Request, record
from perfdoctor.recording.directory import RunDirectory

pytestmark = pytest.mark.e2e


def test_a_crashed_jobs_traceback_is_whole(perfdoctor: Perfdoctor, crashed: Checked) -> None:
    _is_reported_with_its_whole_traceback(crashed, perfdoctor)


@pytest.mark.slow
def test_a_crashed_jobs_traceback_is_whole_where_its_output_goes_to_a_file(perfdoctor: Perfdoctor) -> None:
    checked = perfdoctor.check("--job-output", "file", JOBS / "crash.py")
    _is_reported_with_its_whole_traceback(checked, perfdoctor)


def _is_reported_with_its_whole_traceback(checked: Checked, perfdoctor: Perfdoctor) -> None:
    assert checked.code == 4
    bare = perfdoctor.bare(JOBS / "crash.py").stderr.decode()
    assert "ZeroDivisionError" in bare
    assert checked.stderr.startswith(bare)
    assert checked.stderr.endswith("perfdoctor: the job failed with exit code 1\n")
    # What was measured up to then is reported.
    assert checked.steps >= 60
    assert "it failed with exit code 1" in checked.stdout


@pytest.mark.slow
def test_a_job_killed_from_outside(perfdoctor: Perfdoctor) -> None:
    def kill(started: Started) -> None:
        started.wait_for_steps(32)
        os.kill(started.job(), signal.SIGKILL)

    checked = perfdoctor.check(JOBS / "train.py", during=kill)
    assert checked.code == 4
    assert checked.stderr.endswith("perfdoctor: the job was killed by signal 9 (SIGKILL)\n")
    assert checked.steps >= 32
    assert checked.facts["signal"] == 9


def test_a_job_that_hangs_before_its_first_step(perfdoctor: Perfdoctor) -> None:
    checked = perfdoctor.check("--patience", "3", JOBS / "hang.py")
    assert checked.code == 3
    assert checked.stderr == (
        "perfdoctor: no step within 3 s; the job was ended (wait longer with --patience SECONDS)\n"
    )


@pytest.mark.slow
def test_too_few_steps(perfdoctor: Perfdoctor) -> None:
    checked = perfdoctor.check(JOBS / "train.py", "--steps", "4")
    assert checked.code == 3
    (line,) = checked.stderr.splitlines()
    assert "too few steady steps: 3 of the 4 seen" in line and "let the job run longer" in line


@pytest.mark.slow
def test_a_full_disk(perfdoctor: Perfdoctor) -> None:
    """No file may grow beyond 60 KB: the job runs on unharmed, the report says what is missing."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    checked = perfdoctor.check("--to-end", JOBS / "train.py", "--steps", "1500", "--sleep", "0.002", preexec_fn=limit)
    assert "training for 1500 steps" in checked.stdout and "trained\n" in checked.stdout
    assert checked.facts["end"] == "finished"
    assert checked.code == 0, checked.stderr
    assert "Some of what the probe saw could not be written" in " ".join(checked.stdout.split())
    assert sum(path.stat().st_size for path in checked.run.glob("process-*")) <= 60_000


@pytest.mark.slow
def test_no_half_report_is_left(perfdoctor: Perfdoctor) -> None:
    """The disk fills up while the report is written."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, 8_000))

    checked = perfdoctor.check(JOBS / "train.py", "--steps", "40", preexec_fn=limit)
    assert checked.code == 2
    assert "cannot write" in checked.stderr and "perfdoctor report" in checked.stderr
    assert checked.report is None


def test_a_disk_that_is_full_from_the_start(perfdoctor: Perfdoctor, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", disk], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("mounting is not permitted")
    try:
        with (disk / "full").open("wb", buffering=0) as file, pytest.raises(OSError):
            while True:
                file.write(bytes(4096))
        checked = perfdoctor("check", "--runs", disk, JOBS / "train.py")
        assert checked.code == 2
        assert "No space left on device" in checked.stderr and "--runs" in checked.stderr
        assert [path.name for path in disk.iterdir()] == ["full"]
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.slow
def test_a_run_directory_that_holds_no_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on some network disks: no control channel, so the files say when there is enough."""

    def refuse(self: ControlServer, directory: Path) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(ControlServer, "_listen", refuse)
    directory = RunDirectory.create(tmp_path / "runs", "train")
    command = script(sys.executable, str(JOBS / "train.py"), ())
    request = Request(command, Config(steps=20), to_end=False, output="file")
    ending = record(request, directory, lambda progress: None)
    assert ending.kind == "stopped"
    assert ending.problems == ("no control channel: Operation not permitted",)


def test_a_job_that_the_kernel_ended_for_want_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kills = iter([3, 4])
    monkeypatch.setattr(Cgroups, "oom_kills", lambda self: next(kills))
    directory = RunDirectory.create(tmp_path / "runs", "greedy")
    command = verbatim([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])
    ending = record(Request(command, Config(), to_end=False, output="file"), directory, lambda progress: None)
    assert (ending.kind, ending.signal) == ("killed", 9)
    assert "out of memory" in ending.detail
    assert "out of memory" in directory.run_file.read_text()


@pytest.mark.slow
def test_a_job_that_outgrows_its_control_group(tmp_path: Path) -> None:
    """The kernel itself ends it, in a group of its own with room for little more than torch."""
    group = Path("/sys/fs/cgroup/memory/perfdoctor-test")
    limit = group / "memory.limit_in_bytes"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group of version 1 can be made here: {error}")
    try:
        limit.write_text(str(700 << 20))
        check = [
            sys.executable,
            "-m",
            "perfdoctor",
            "check",
            "--to-end",
            "--runs",
            str(tmp_path),
            str(JOBS / "greedy.py"),
        ]
        inside = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh", *check]
        done = subprocess.run(inside, capture_output=True, text=True, timeout=100, check=False)
    finally:
        group.rmdir()
    assert done.returncode == 4
    assert "out of memory: the kernel ended a process" in done.stderr


def test_an_interpreter_that_is_not_there(perfdoctor: Perfdoctor, tmp_path: Path) -> None:
    checked = perfdoctor("check", "--python", tmp_path / "python", JOBS / "train.py")
    assert checked.code == 2
    assert "cannot start" in checked.stderr
    assert list((tmp_path / ".perfdoctor" / "runs").iterdir()) == []
