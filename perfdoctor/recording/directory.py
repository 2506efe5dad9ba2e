"""Names of the files in a run directory, and nothing about what is in them.

run.json        what was started and how it ended, by the launcher
machine.json    what the job could use, by the monitor
host.jsonl      samples from outside the job, by the monitor
process-*.jsonl one file per Python process, by the probe
digest-*.bin    what a diagnosis of many ranks needs of a node's processes, by the launcher or `perfdoctor digest`
trace-*.json    the profiler's own trace of a process's operator window, where it was asked for
timings.json     what a limit on vector extensions costs, timed after the job by the launcher
python.json     what Python's debugging allocator costs, timed likewise
trials.json     which remedies were to be tried, by the launcher
job.out         the job's output, when it was not passed through
control.sock    the Unix socket between launcher and probe, while the job runs
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from ..errors import PerfdoctorError
from ..exits import Exit

_OURS = (stat.S_ISREG, stat.S_ISDIR, stat.S_ISSOCK)
OWNER_ONLY = 0o700
OWN_DIRECTORY = ".perfdoctor"
"""Made by perfdoctor in the working directory; the user chooses others."""


class _File:
    """A file of a run directory, by its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, directory: RunDirectory, _: type) -> Path:
        return directory.path / self.name


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """One recording on disk."""

    path: Path

    run_file = _File("run.json")
    machine_file = _File("machine.json")
    host_file = _File("host.jsonl")
    timings_file = _File("timings.json")
    python_file = _File("python.json")
    trials_file = _File("trials.json")
    job_output = _File("job.out")

    def process_files(self) -> Iterator[Path]:
        """The probe's files, oldest process first as far as names tell."""
        yield from sorted(self.path.glob("process-*.jsonl"))

    def digest_files(self) -> Iterator[Path]:
        """One for each node that wrote one."""
        yield from sorted(self.path.glob("digest-*.bin"))

    def stray(self) -> str:
        """What lies in it that perfdoctor did not put there: a link, which may lead to any file of whoever reads it, or
        a pipe, whose reader waits for ever; "" for nothing."""
        with os.scandir(self.path) as entries:
            kinds = {entry.name: entry.stat(follow_symlinks=False).st_mode for entry in entries}
        return next((name for name, mode in sorted(kinds.items()) if not any(is_(mode) for is_ in _OURS)), "")

    @classmethod
    def create(cls, parent: Path, name: str) -> RunDirectory:
        """A new directory `<parent>/<UTC time>-<name>`, readable by its owner only.

        Raises PerfdoctorError when it cannot be made.
        """
        stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
        safe = "".join(c if c.isalnum() or c in "._-" else "-" for c in name)[:40] or "job"
        for attempt in range(100):
            path = parent / (f"{stamp}-{safe}" if attempt == 0 else f"{stamp}-{safe}-{attempt}")
            try:
                make_parent(parent)
                path.mkdir(mode=OWNER_ONLY)
            except FileExistsError:
                if not parent.is_dir():
                    raise _unwritable(parent, "a file is in the way") from None
                continue
            except OSError as error:
                raise _unwritable(parent, error.strerror or str(error)) from error
            if not os.access(path, os.W_OK | os.X_OK):
                raise _unwritable(parent, "not writable")
            return cls(path.resolve())
        raise _unwritable(parent, "100 runs in one second")


def make_parent(parent: Path) -> None:
    """The directory of all runs; git does not see the one that is perfdoctor's own."""
    own = parent.parent
    if own.name == OWN_DIRECTORY and not own.exists():
        own.mkdir(OWNER_ONLY, parents=True)
        (own / ".gitignore").write_text("*\n")
    parent.mkdir(parents=True, exist_ok=True)


def _unwritable(parent: Path, why: str) -> PerfdoctorError:
    return PerfdoctorError(
        f"cannot make a run directory in {parent}: {why}",
        slug="run-directory",
        advice="name a writable place with --runs DIR",
        exit_code=Exit.USAGE,
    )
