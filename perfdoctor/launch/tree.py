"""Ends a job with all its processes, and only those.

torchrun puts its ranks into sessions of their own, so killing a process group is not enough. perfdoctor makes
itself the subreaper of its descendants: an orphan of the job becomes our child instead of init's.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time

import psutil

_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """From now on orphaned descendants are reparented to this process (Linux; elsewhere nothing happens)."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants() -> list[psutil.Process]:
    """All living processes below this one."""
    try:
        return [child for child in psutil.Process().children(recursive=True) if _alive(child)]
    except psutil.Error:
        return []


def end(job: int, grace_s: float) -> None:
    """SIGTERM to every descendant, SIGKILL to those left after `grace_s`. `job` is left for its owner to reap."""
    for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 5.0)):
        deadline = time.monotonic() + wait_s
        for process in descendants():
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)
        while time.monotonic() < deadline:
            reap(job)
            if not descendants():
                return
            time.sleep(0.02)


def reap(job: int) -> None:
    """Collect dead orphans; the job itself belongs to its `Popen`."""
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process().children():
            if child.pid != job and not _alive(child):
                with contextlib.suppress(ChildProcessError, OSError):
                    os.waitpid(child.pid, os.WNOHANG)


def _alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
