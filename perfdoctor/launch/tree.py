"""Ends a job with all its processes, and only those.

torchrun puts its ranks into sessions of their own, so killing a process group is not enough. perfdoctor makes
itself the subreaper of its descendants: an orphan of the job becomes our child instead of init's. Children that
we had before the job are not the job's: a shell that replaces itself by perfdoctor leaves us its `tee`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterable

import psutil

_PR_SET_CHILD_SUBREAPER = 36
_KILL_PATIENCE_S = 5.0
"""Only a process in an uninterruptible wait (a dead network disk) outlives SIGKILL, and nothing helps then."""


class JobProcesses:
    """All descendants of this process that come after its making: make it just before the job starts."""

    def __init__(self) -> None:
        _become_subreaper()
        self._others = frozenset(psutil.Process().children())

    def living(self) -> list[psutil.Process]:
        """Those that have not ended.

        One walk from ourselves down: asking each child for its children in turn loses an orphan whose parent
        dies after we listed our own children and before we list the parent's.
        """
        descendants = _descendants(psutil.Process())
        others = {process for other in self._others for process in (other, *_descendants(other))}
        return [process for process in descendants if process not in others and _alive(process)]

    def end(self, job: int, grace_s: float) -> None:
        """SIGTERM to every descendant, SIGKILL to those left after `grace_s`. `job` is left for its owner to reap."""
        _send(self.living(), signal.SIGTERM)
        if not self._gone(job, grace_s, kill=False):
            self._gone(job, _KILL_PATIENCE_S, kill=True)

    def kill(self, job: int) -> None:
        """SIGKILL to every descendant, once all of them stand still: none sees another one die, so that none can take
        it for a failure, print what it makes of that, or start it again."""
        still: set[psutil.Process] = set()
        while new := set(self.living()) - still:
            _send(new, signal.SIGSTOP)
            still |= new
        self._gone(job, _KILL_PATIENCE_S, kill=True)

    def _gone(self, job: int, patience_s: float, kill: bool) -> bool:
        deadline = time.monotonic() + patience_s
        while True:
            left = self.living()
            if kill:
                _send(left, signal.SIGKILL)  # again and again: a process may have started another meanwhile
            reap(job)
            if not left:
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)


def reap(job: int) -> None:
    """Collect dead orphans; the job itself belongs to its `Popen`. Costs one system call when there are none."""
    with contextlib.suppress(ChildProcessError):
        while (dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if dead.si_pid == job:
                return
            os.waitpid(dead.si_pid, os.WNOHANG)


def _become_subreaper() -> None:
    """From now on orphaned descendants are reparented to this process (Linux; elsewhere nothing happens)."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []


def _send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)


def _alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
