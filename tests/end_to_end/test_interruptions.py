"""Ctrl-C, SIGTERM and the live view: what there is is reported, and nobody is left behind."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest
from running import JOBS, Perfdoctor, Started, wait_until


def test_ctrl_c_once_reports_what_there_is(perfdoctor: Perfdoctor) -> None:
    def interrupt(started: Started) -> None:
        started.wait_for_steps(32)
        started.interrupt()

    checked = perfdoctor.check("--to-end", JOBS / "train.py", during=interrupt)
    assert checked.code == 0, checked.stderr
    assert "you interrupted it" in checked.stdout
    assert checked.facts["end"] == "interrupted"
    assert checked.steps >= 32


@pytest.mark.slow
def test_ctrl_c_before_the_first_step(perfdoctor: Perfdoctor) -> None:
    def interrupt(started: Started) -> None:
        started.wait_for_output("hanging")
        started.interrupt()

    checked = perfdoctor.check("--job-output", "file", JOBS / "hang.py", during=interrupt)
    assert checked.code == 3
    assert "nothing to judge" in checked.stderr


@pytest.mark.slow
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


@pytest.mark.slow
def test_sigterm_takes_the_job_along(perfdoctor: Perfdoctor) -> None:
    """A scheduler's or CI's time is up: the signal reaches perfdoctor alone."""

    def terminate(started: Started) -> None:
        started.wait_for_steps(32)
        started.process.terminate()

    checked = perfdoctor.check("--to-end", JOBS / "train.py", during=terminate)
    assert checked.code == 0, checked.stderr
    assert checked.facts["end"] == "interrupted"


@pytest.mark.slow
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


@pytest.mark.slow
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
