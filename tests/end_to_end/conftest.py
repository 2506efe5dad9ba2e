"""Fixtures for whole runs, and the runs that several modules look at."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from launches import Launches
from running import JOBS, Checked, Perfdoctor, Said

from perfdoctor import cli

# A shell starts background jobs deaf to Ctrl-C, and children inherit that; handlers they do not inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def perfdoctor(tmp_path: Path, launches: Launches) -> Iterator[Perfdoctor]:
    runner = Perfdoctor(tmp_path, launches)
    yield runner
    runner.end_all()


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Said:
    """`perfdoctor WORDS` in this process and in `tmp_path`, for what launches no job."""
    for name in [name for name in os.environ if name.startswith("PERFDOCTOR")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)

    def call(*words: str | Path) -> Checked:
        with pytest.raises(SystemExit) as end:
            cli.main([str(word) for word in words])
        out, err = capfd.readouterr()
        return Checked(int(end.value.code or 0), out, err, tmp_path / ".perfdoctor" / "runs", None)

    return call


@pytest.fixture
def healthy(perfdoctor: Perfdoctor) -> Checked:
    """An ordinary job from its start to its end, with secrets in its arguments and its environment."""
    return perfdoctor.check_once(
        *(JOBS / "train.py", "--steps", "60", "-v", "--api-key", "abc123secret"),
        env={"WANDB_API_KEY": "def456secret", "MALLOC_ARENA_MAX": "2"},
    )


@pytest.fixture
def collecting(perfdoctor: Perfdoctor) -> Checked:
    """A job with an error that anybody would find: most of its step is `gc.collect()`. Its trace is kept."""
    return perfdoctor.check_once("--steps", "20", "--trace", "trace.json.gz", JOBS / "collects.py")


@pytest.fixture
def crashed(perfdoctor: Perfdoctor) -> Checked:
    """A job that trains for a while and then fails."""
    return perfdoctor.check_once(JOBS / "crash.py")
