"""What a machine that is shared does to tests that launch jobs and measure them."""

from __future__ import annotations

import time

from perfdoctor.monitor.system import CpuClock

STOLEN = 0.05
"""Of the CPU time that was wanted: half of what PD12 names."""
IDLE = 0.10
"""Of the CPU time. With less, the training jobs of two test workers and their ranks waited for one another: a job that
waited for a CPU for a third of its time had two profiled steps of nothing but waiting, and an illness was missed."""
DISK = 0.10
"""Of the CPU time, for which nobody ran because a disk was waited for: torch's libraries come from the page cache, but
for the first time after a start of the machine."""
TELLING_S = 1.0
"""Of CPU time: the kernel counts it in hundredths."""


class DisturbedError(Exception):
    """A test failed on a machine whose CPUs were given to others, all busy or waiting for a disk: it is run again."""


class Watch:
    """Over the machine's CPUs from now on."""

    def __init__(self) -> None:
        self._clock = CpuClock()
        self._since = time.monotonic()

    def disturbance(self) -> str:
        """Why what ran meanwhile may have waited for others; empty where the CPUs were there for it.

        To be asked once: a later answer is about the time since the first.
        """
        passed_s = time.monotonic() - self._since
        cpus = self._clock.read()
        return disturbance(*(part * passed_s for part in (cpus.busy, cpus.idle, cpus.iowait, cpus.steal)))


def disturbance(busy_s: float, idle_s: float, disk_s: float, stolen_s: float) -> str:
    """Of CPU seconds: what a test may blame its failure on, empty if nothing. `disk_s`: idle for want of a disk."""
    wanted_s, all_s = busy_s + stolen_s, busy_s + stolen_s + idle_s + disk_s
    if wanted_s > TELLING_S and stolen_s >= STOLEN * wanted_s:
        return f"{stolen_s / wanted_s:.0%} of the CPU time was stolen"
    if all_s > TELLING_S and disk_s >= DISK * all_s:
        return f"{disk_s / all_s:.0%} of the CPU time waited for a disk"
    if all_s > TELLING_S and idle_s <= IDLE * all_s:
        return f"{idle_s / all_s:.0%} of the CPU time was idle"
    return ""
