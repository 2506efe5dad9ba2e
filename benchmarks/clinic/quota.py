"""A control group with a CPU quota around a job, as a container has one; where this process may make one."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from perfdoctor.monitor.cgroup import Cgroups

PERIOD_US = 100_000
"""The kernel's own default."""
_PATIENCE_S = 3.0
"""How long the group's last processes may take to go."""
_JOIN = 'echo $$ > "$0/cgroup.procs" && exec "$@"'


class NotAllowedError(Exception):
    """This process may not make such a group here."""


@contextmanager
def group(cpus: float, parents: Iterable[Path] | None = None) -> Iterator[Path]:
    """A group that may use so many CPUs. What still runs in it at the end is killed. Raises NotAllowedError."""
    here = _made(cpus, _own() if parents is None else parents)
    try:
        yield here
    finally:
        _remove(here)


def joining(here: Path) -> list[str]:
    """What to put before a command so that it, and all that it starts, runs in the group from the first instruction."""
    return ["/bin/sh", "-c", _JOIN, str(here)]


def _own() -> list[Path]:
    """The group that this process is in, then the one above: v2 wants groups with processes to have no groups below."""
    levels = [Path(level.group) for level in Cgroups().throttling()[:1]]
    return [one for level in levels for one in (level, level.parent) if (one / "cgroup.procs").exists()]


def _made(cpus: float, parents: Iterable[Path]) -> Path:
    reasons = []
    for parent in parents:
        here = parent / f"clinic-{uuid.uuid4().hex[:12]}"
        try:
            here.mkdir()
        except OSError as error:
            reasons.append(str(error))
            continue
        try:
            _limit(here, round(cpus * PERIOD_US))
        except OSError as error:
            here.rmdir()
            reasons.append(str(error))
        else:
            return here
    raise NotAllowedError("; ".join(reasons) or "there is no control group for CPUs")


def _limit(here: Path, quota_us: int) -> None:
    """v2 has both numbers in one file, v1 has two files. Never creates one: outside a control group there are none."""
    both = here / "cpu.max"
    for file, text in (
        [(both, f"{quota_us} {PERIOD_US}")]
        if both.exists()
        else [(here / "cpu.cfs_period_us", str(PERIOD_US)), (here / "cpu.cfs_quota_us", str(quota_us))]
    ):
        with file.open("r+") as setting:
            setting.write(text)


def _remove(here: Path) -> None:
    end = time.monotonic() + _PATIENCE_S
    while True:
        for pid in (here / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        with suppress(OSError):
            here.rmdir()
            return
        if time.monotonic() > end:
            raise RuntimeError(f"{here} still has processes: remove it by hand with rmdir")
        time.sleep(0.05)
