"""When things go wrong: one clear line with what to do, the right exit code, nothing lost, nobody left behind."""

from __future__ import annotations

import os
import pty
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from running import JOBS, Checked, Perfdoctor, Started, wait_until

from perfdoctor.config.settings import Config
from perfdoctor.launch.command import script, verbatim
from perfdoctor.launch.control import ControlServer
from perfdoctor.monitor.cgroup import Cgroups
from perfdoctor.observation.session import Request, record
from perfdoctor.recording.directory import RunDirectory

pytestmark = pytest.mark.e2e


# -- the job ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["passthrough", "file"])
def test_a_crashed_jobs_traceback_is_whole(perfdoctor: Perfdoctor, mode: str) -> None:
    checked = perfdoctor.check("--job-output", mode, JOBS / "crash.py")
    assert checked.code == 4
    bare = perfdoctor.bare(JOBS / "crash.py").stderr.decode()
    assert checked.stderr.startswith(bare)
    assert checked.stderr.endswith("perfdoctor: the job failed with exit code 1\n")
    # What was measured up to then is reported.
    assert checked.steps >= 60
    assert "it failed with exit code 1" in checked.stdout


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


def test_too_few_steps(perfdoctor: Perfdoctor) -> None:
    checked = perfdoctor.check(JOBS / "train.py", "--steps", "4")
    assert checked.code == 3
    (line,) = checked.stderr.splitlines()
    assert "too few steady steps: 3 of the 4 seen" in line and "let the job run longer" in line


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


# -- Ctrl-C -------------------------------------------------------------------------------------------------


def test_ctrl_c_once_reports_what_there_is(perfdoctor: Perfdoctor) -> None:
    def interrupt(started: Started) -> None:
        started.wait_for_steps(32)
        started.interrupt()

    checked = perfdoctor.check("--to-end", JOBS / "train.py", during=interrupt)
    assert checked.code == 0, checked.stderr
    assert "you interrupted it" in checked.stdout
    assert checked.facts["end"] == "interrupted"
    assert checked.steps >= 32


def test_ctrl_c_before_the_first_step(perfdoctor: Perfdoctor) -> None:
    def interrupt(started: Started) -> None:
        started.wait_for_output("hanging")
        started.interrupt()

    checked = perfdoctor.check("--job-output", "file", JOBS / "hang.py", during=interrupt)
    assert checked.code == 3
    assert "nothing to judge" in checked.stderr


def test_ctrl_c_twice_ends_everything_at_once(perfdoctor: Perfdoctor, tmp_path: Path) -> None:
    said = tmp_path / "stderr"

    def interrupt(started: Started) -> None:
        started.wait_for_steps(32)
        started.interrupt()
        # Two signals at once would count as one.
        wait_until(lambda: "Ctrl-C again ends it at once" in said.read_text())
        started.wait_for_output("caught")
        started.interrupt()

    with said.open("wb") as stderr:
        checked = perfdoctor.check(
            *("--to-end", "--job-output", "file", JOBS / "stubborn.py"), during=interrupt, stderr=stderr
        )
    assert checked.code == 130
    assert checked.report is None
    assert "Traceback" not in said.read_text()
    # The recording is complete, so it can be judged later.
    assert checked.facts["end"] == "interrupted"
    later = perfdoctor("report", "--fail-on", "never", checked.run)
    assert later.code == 0, later.stderr
    assert "you interrupted it" in later.stdout


def test_sigterm_takes_the_job_along(perfdoctor: Perfdoctor) -> None:
    """A scheduler's or CI's time is up: the signal reaches perfdoctor alone."""

    def terminate(started: Started) -> None:
        started.wait_for_steps(32)
        started.process.terminate()

    checked = perfdoctor.check("--to-end", JOBS / "train.py", during=terminate)
    assert checked.code == 0, checked.stderr
    assert checked.facts["end"] == "interrupted"


def test_ctrl_c_on_a_terminal(perfdoctor: Perfdoctor, tmp_path: Path) -> None:
    """In the live view: the view goes, the report stays."""
    view = _Terminal(perfdoctor, "check", "--steps", "100000", JOBS / "train.py")
    view.read_until("of 100000 steady steps")
    os.write(view.master, b"\x03")
    text = view.read_to_end()
    assert view.process.returncode == 0
    assert "Ctrl-C again ends it at once" in text
    assert "you interrupted it" in text
    assert perfdoctor.end_all() == []


def test_the_live_view_of_a_crash_leaves_its_traceback(perfdoctor: Perfdoctor) -> None:
    view = _Terminal(perfdoctor, "check", JOBS / "crash.py")
    text = view.read_to_end()
    assert view.process.returncode == 4
    assert "ZeroDivisionError: division by zero" in text
    assert "Traceback (most recent call last)" in text
    assert "the job failed with exit code 1" in text


class _Terminal:
    """perfdoctor on a pseudo-terminal of 80 columns and 24 lines."""

    def __init__(self, perfdoctor: Perfdoctor, *words: str | Path) -> None:
        self.master, terminal = pty.openpty()
        subprocess.run(["stty", "cols", "80", "rows", "24"], stdin=terminal, check=True)
        self.process = perfdoctor.start(
            *words,
            env={"TERM": "xterm-256color"},
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            # The terminal must be the session's own for Ctrl-C to reach it.
            preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),
        )
        os.close(terminal)
        self.text = ""

    def read_until(self, text: str) -> None:
        while text not in self.text:
            assert self._read(), self.text

    def read_to_end(self) -> str:
        while self._read():
            pass
        self.process.wait(60)
        os.close(self.master)
        return self.text

    def _read(self) -> bool:
        try:
            data = os.read(self.master, 65536)
        except OSError:  # how Linux says that the other side has gone
            return False
        self.text += data.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(data)


# -- perfdoctor's own surroundings --------------------------------------------------------------------------


def test_a_run_directory_that_cannot_be_made(perfdoctor: Perfdoctor, tmp_path: Path) -> None:
    (tmp_path / "in-the-way").touch()
    checked = perfdoctor("check", "--runs", tmp_path / "in-the-way" / "runs", JOBS / "train.py")
    assert checked.code == 2
    assert "cannot make a run directory" in checked.stderr and "--runs DIR" in checked.stderr
    assert "training" not in checked.stdout


def test_a_report_that_cannot_be_written_is_refused_before_the_job(perfdoctor: Perfdoctor, tmp_path: Path) -> None:
    checked = perfdoctor("check", "--output", f"json:{tmp_path}/none/report.json", JOBS / "train.py")
    assert checked.code == 2
    assert "cannot write the report" in checked.stderr
    assert not (tmp_path / ".perfdoctor").exists()


def test_an_interpreter_that_is_not_there(perfdoctor: Perfdoctor, tmp_path: Path) -> None:
    checked = perfdoctor("check", "--python", tmp_path / "python", JOBS / "train.py")
    assert checked.code == 2
    assert "cannot start" in checked.stderr
    assert list((tmp_path / ".perfdoctor" / "runs").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trian.py"], "did you mean train.py?"),
        (["notes.txt"], "notes.txt is not a Python program"),
        (["."], "without __main__.py"),
        (["ls", "-l"], "perfdoctor check -- ls -l"),
        (["--", "no-such-command"], "there is no command no-such-command"),
        ([], "there is nothing to run"),
        (["--steps", "-3", "train.py"], "--steps"),
        (["--job-output", "nowhere", "train.py"], "live, passthrough, file"),
        (["--output", "pdf", "train.py"], "console, concise, markdown, json, jsonl, sarif, junit, github, gitlab"),
        (["--output", "json", "--output", "markdown", "train.py"], "two reports cannot share stdout"),
        (["--log-every", "0", "train.py"], "--log-every"),
        (["--fail-on", "sometimes", "train.py"], "error"),
        (["--select", "PD99", "train.py"], "PD99"),
    ],
)
def test_usage_errors_say_what_to_do(perfdoctor: Perfdoctor, tmp_path: Path, words: list[str], said: str) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit('the job was started')\n")
    (tmp_path / "notes.txt").write_text("to do\n")
    checked = perfdoctor("check", *words)
    assert checked.code == 2
    assert said in checked.stderr
    assert "Traceback" not in checked.stderr
    assert "the job was started" not in checked.stderr


def test_a_misspelled_setting_names_file_and_key(perfdoctor: Perfdoctor, tmp_path: Path) -> None:
    (tmp_path / "perfdoctor.toml").write_text("stepz = 3\n")
    checked = perfdoctor("check", JOBS / "train.py")
    assert checked.code == 2
    assert str(tmp_path / "perfdoctor.toml") in checked.stderr
    assert "stepz" in checked.stderr and "`steps`" in checked.stderr


# -- recordings ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded(perfdoctor_once: Perfdoctor) -> Checked:
    return perfdoctor_once.check(JOBS / "train.py", "--steps", "40")


def _copy(recorded: Checked, to: Path) -> Path:
    to.mkdir()
    for file in recorded.run.iterdir():
        (to / file.name).write_bytes(file.read_bytes())
    return to


def test_a_cut_recording_is_judged_on_what_is_whole(perfdoctor: Perfdoctor, tmp_path: Path, recorded: Checked) -> None:
    run = _copy(recorded, tmp_path / "run")
    (file,) = run.glob("process-*.jsonl")
    file.write_bytes(file.read_bytes()[:-7])
    checked = perfdoctor("report", run)
    assert checked.code == 0, checked.stderr
    assert "the last line is cut" in " ".join(checked.stdout.split())


def test_a_recording_of_a_newer_version(perfdoctor: Perfdoctor, tmp_path: Path, recorded: Checked) -> None:
    run = _copy(recorded, tmp_path / "run")
    facts = (run / "run.json").read_text()
    (run / "run.json").write_text(facts.replace("perfdoctor.run/2", "perfdoctor.run/99"))
    checked = perfdoctor("report", run)
    assert checked.code == 2
    assert "newer perfdoctor" in checked.stderr and "pip install --upgrade" in checked.stderr


@pytest.mark.parametrize("facts", ['{"schema": "other/1"}', '{"schema": "perfdoctor.run/one"}', "[]", "{", None])
def test_what_is_no_recording(perfdoctor: Perfdoctor, tmp_path: Path, facts: str | None) -> None:
    if facts is not None:
        (tmp_path / "run.json").write_text(facts)
    checked = perfdoctor("report", tmp_path)
    assert checked.code == 2
    assert len(checked.stderr.splitlines()) == 2
    assert str(tmp_path) in checked.stderr
