"""Runs a job bare and under the probe, side by side, and reads what the probe wrote."""

from __future__ import annotations

import linecache
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from perfdoctor.recording.base import Missing, Site
from perfdoctor.recording.model import ProcessRecording
from perfdoctor.recording.reader import ProcessFile

JOBS = Path(__file__).parent.parent / "jobs"
_TIMEOUT_S = 400
INJECTED = Path(__file__).parent.parent.parent / "perfdoctor" / "injected"


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
    processes: tuple[ProcessRecording, ...]
    names: Mapping[int, str]

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
            assert process.faults == ()
            assert process.problems == ()


def line_of(site: Site | Missing | None) -> str:
    """The text of a line of a job in the folder of jobs; "" without one."""
    return linecache.getline(str(JOBS / site.file), site.line).strip() if isinstance(site, Site) else ""


def read_run(run: Path) -> tuple[ProcessRecording, ...]:
    """Every process file of a directory."""
    found = []
    for path in sorted(run.glob("process-*.jsonl")):
        file = ProcessFile(path)
        file.refresh()
        process = file.recording()
        assert process is not None, path.read_text()
        found.append(process)
    return tuple(found)


def probed_environment(base: Mapping[str, str], run: Path, windows: str) -> dict[str, str]:
    """`base` with the way in, as the launcher makes it."""
    old = base.get("PYTHONPATH", "")
    return {
        **base,
        "PYTHONPATH": f"{INJECTED}:{old}" if old else str(INJECTED),
        "PERFDOCTOR_RUN": str(run),
        "PERFDOCTOR_WINDOWS": windows,
    }


class Runner:
    """Makes `Observed` values in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.count = 0

    def start(self, command: Sequence[str], env: Mapping[str, str], cwd: Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command, env=dict(env), cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def __call__(
        self,
        script: str | Path,
        *args: str,
        windows: str = "sites,ops",
        flags: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        cwd: Path = JOBS,
        command: Sequence[str] | None = None,
        together: bool = True,
        run: Path | None = None,
    ) -> Observed:
        """Run `python [flags] script args` (or `command`) twice, at the same time if `together`."""
        self.count += 1
        here = self.directory / f"observed-{self.count}"
        here.mkdir()
        if run is None:
            run = here / "run"
            run.mkdir()
        base = {k: v for k, v in os.environ.items() if not k.startswith(("PERFDOCTOR", "PYTHON"))}
        base |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", **(env or {})}
        words = list(command) if command else [sys.executable, *flags, str(script), *args]
        observed = probed_environment(base, run, windows) | {"JOB_PIDS": str(here / "pids")}
        first = self.start(words, base, cwd)
        if not together:
            outcome = first.communicate(timeout=_TIMEOUT_S)
        second = self.start(words, observed, cwd)
        if together:
            outcome = first.communicate(timeout=_TIMEOUT_S)
        bare = Result(*outcome, first.returncode)
        probed = Result(*second.communicate(timeout=_TIMEOUT_S), second.returncode)
        names = {}
        if (here / "pids").exists():
            for line in (here / "pids").read_text().splitlines():
                name, pid = line.split()
                names[int(pid)] = name
        processes = read_run(run) if run.is_dir() else ()
        return Observed(bare, probed, processes, names)


@pytest.fixture
def observe(tmp_path: Path) -> Callable[..., Observed]:
    return Runner(tmp_path)


@pytest.fixture(scope="module")
def observe_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Observed]:
    """For a run that several tests look at."""
    return Runner(tmp_path_factory.mktemp("observed"))
