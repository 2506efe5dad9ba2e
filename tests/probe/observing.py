"""Runs a job bare and under the probe, side by side, and reads what the probe wrote."""

from __future__ import annotations

import linecache
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from launches import Launches

from perfdoctor.recording.base import Missing, Site
from perfdoctor.recording.model import ProcessRecording
from perfdoctor.recording.reader import ProcessFile

JOBS = Path(__file__).parent.parent / "jobs"
INJECTED = Path(__file__).parent.parent.parent / "perfdoctor" / "injected"
_TIMEOUT_S = 400


@dataclass(frozen=True)
class Result:
    """What the world sees of one run."""

    stdout: str
    stderr: str
    code: int


@dataclass(frozen=True)
class Observed:
    """Both runs, and the recordings of the second."""

    bare: Result
    probed: Result
    run: Path
    names: Mapping[int, str]
    """Of the children that `loops.py` ran a style in, by their pid."""

    @cached_property
    def processes(self) -> tuple[ProcessRecording, ...]:
        """Every process file of the run."""
        found = []
        for path in sorted(self.run.glob("process-*.jsonl")):
            file = ProcessFile(path)
            file.refresh()
            process = file.recording()
            assert process is not None, path.read_text()
            found.append(process)
        return tuple(found)

    @property
    def ranks(self) -> list[ProcessRecording]:
        return sorted((p for p in self.processes if p.role == "rank"), key=lambda p: p.rank)

    @property
    def rank(self) -> ProcessRecording:
        (rank,) = self.ranks
        return rank

    @property
    def workers(self) -> list[ProcessRecording]:
        return [p for p in self.processes if p.role == "worker"]

    def named(self, name: str) -> ProcessRecording:
        """The child that `loops.py` ran this style in."""
        (found,) = [p for p in self.processes if self.names.get(p.header.pid) == name]
        return found

    def same(self) -> None:
        """The job did and said the same."""
        assert self.probed.stdout == self.bare.stdout
        assert self.probed.stderr == self.bare.stderr
        assert self.probed.code == self.bare.code

    def healthy(self) -> None:
        """No hook was switched off and every line can be read."""
        for process in self.processes:
            assert process.faults == (), process.faults
            assert process.problems == ()


def line_of(site: Site | Missing | None) -> str:
    """The text of a line of a job in the folder of jobs; "" without one."""
    return linecache.getline(str(JOBS / site.file), site.line).strip() if isinstance(site, Site) else ""


def bare_environment(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """Of a job without the probe, whatever this session's is."""
    base = {k: v for k, v in os.environ.items() if not k.startswith(("PERFDOCTOR", "PYTHON"))}
    return base | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"} | dict(env or {})


def probed_environment(base: Mapping[str, str], run: Path, windows: str) -> dict[str, str]:
    """`base` with the way in, as the launcher makes it."""
    old = base.get("PYTHONPATH", "")
    return {
        **base,
        "PYTHONPATH": f"{INJECTED}:{old}" if old else str(INJECTED),
        "PERFDOCTOR_RUN": str(run),
        "PERFDOCTOR_WINDOWS": windows,
    }


class Observer:
    """Makes `Observed` values, one for each job, arguments and environment in a session."""

    def __init__(self, launches: Launches) -> None:
        self.launches = launches

    def __call__(
        self,
        script: str | Path,
        *args: str,
        windows: str = "sites,ops",
        flags: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        cwd: Path = JOBS,
        command: Sequence[str] | None = None,
        run: Path | None = None,
    ) -> Observed:
        """Run `python [flags] script args` (or `command`) twice at the same time."""
        words = list(command) if command else [sys.executable, *flags, str(script), *args]

        def launch(here: Path) -> Observed:
            into = run or here / "run"
            if run is None:
                into.mkdir()
            base = bare_environment(env)
            observed = probed_environment(base, into, windows) | {"JOB_PIDS": str(here / "pids")}
            first, second = _start(words, base, cwd), _start(words, observed, cwd)
            bare, probed = _result(first), _result(second)
            pids = (here / "pids").read_text().splitlines() if (here / "pids").exists() else []
            return Observed(bare, probed, into, {int(pid): name for name, pid in map(str.split, pids)})

        return self.launches.once((words, windows, env, cwd, run), launch)


def _start(command: Sequence[str], env: Mapping[str, str], cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(command, env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _result(process: subprocess.Popen[str]) -> Result:
    return Result(*process.communicate(timeout=_TIMEOUT_S), process.returncode)
