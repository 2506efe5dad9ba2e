"""Who this process is: its first record, and what happens to the probe across forks.

Runs before the job's first line, so only built-in and already loaded modules are used.
"""

import os
import sys
import time

from . import affinity, distant, records, spark, torch_import
from .imports import IMPORTS
from .recorder import Recorder


def enter(run: str) -> None:
    """Open this process's file and wait for torch."""
    began = time.perf_counter_ns()
    recorder = Recorder(distant.place(run))
    _introduce(recorder, began, forked=False)
    # Flushed at once: a process that hangs or dies before torch must have left a trace.
    recorder.flush()

    after_fork: "list" = []

    def in_child() -> None:
        try:
            recorder.renew()
            IMPORTS.stop()
            _introduce(recorder, time.perf_counter_ns(), forked=True)
            for call in after_fork:
                call()
        except Exception:  # would be printed on the job's stderr
            recorder.disable()

    affinity.watch()
    os.register_at_fork(after_in_child=in_child)
    torch_import.when_imported(recorder, after_fork, began)
    spark.mark(_module())
    spark.when_imported(recorder)
    distant.await_ray(recorder)
    IMPORTS.watch()


def _introduce(recorder: Recorder, now_ns: int, forked: bool) -> None:
    # Arguments are left out: they may hold secrets, and the launcher records the command with those masked.
    recorder.record(
        "process",
        version=records.VERSION,
        pid=os.getpid(),
        ppid=os.getppid(),
        t=now_ns,
        start=now_ns if forked else _start_ns(now_ns),
        forked=forked,
        python=".".join(map(str, sys.version_info[:3])),
        executable=sys.executable or "",
        module=_module(),
        cpus=len(affinity.cpus()),
        host=os.uname().nodename,
        boot=distant.boot(),
    )


def _module() -> str:
    """Of `python -m`; "" without that."""
    argv = getattr(sys, "orig_argv", [])
    return argv[argv.index("-m") + 1] if "-m" in argv[1:-1] else ""


def _start_ns(now_ns: int) -> int:
    """When the kernel started this process, to a hundredth of a second; `now_ns` where it does not say."""
    try:
        descriptor = os.open("/proc/self/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            text = os.read(descriptor, 4096)
        finally:
            os.close(descriptor)
        # The 22nd field, clock ticks since the machine's start; the second is a name that may hold blanks.
        ticks = int(text.rpartition(b")")[2].split()[19])
        since_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    except (AttributeError, IndexError, OSError, ValueError):
        return now_ns
    return now_ns - max(0, since_ns)
