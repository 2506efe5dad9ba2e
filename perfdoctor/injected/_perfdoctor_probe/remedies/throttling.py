"""Time that the quota of a control group took from this process, while a trial runs.

The launcher reads the same for the whole run (`monitor/cgroup.py`), too rarely for blocks of 60 ms.
Kernel documentation: admin-guide/cgroup-v2.rst (`throttled_usec`), scheduler/sched-bwc.rst (`throttled_time`, ns).
"""

import os

from .. import procfs

_MOUNTS = ("/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup")
"""Where distributions and container runtimes mount the CPU controller; the last one is that of v2."""


def stat_files(membership: str, mounts: "tuple[str, ...]" = _MOUNTS) -> "list[str]":
    """`cpu.stat` of the group and of all above it, from the text of `/proc/self/cgroup`. A limit may sit on any."""
    groups = {}
    for line in membership.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for name in controllers.split(","):
            groups[name] = path
    path = groups.get("cpu", groups.get("", "/")).strip("/")
    found = []
    for mount in mounts:
        parts = [part for part in path.split("/") if part and part != ".."]
        for count in range(len(parts), -1, -1):
            file = os.path.join(mount, *parts[:count], "cpu.stat")
            if os.path.isfile(file):
                found.append(file)
        if found:
            break
    return found


class Throttling:
    """Reads the counters. About 15 us for each level."""

    def __init__(self, files: "list[str] | None" = None) -> None:
        self.files = stat_files(procfs.text("/proc/self/cgroup")) if files is None else files

    def total_us(self) -> "int | None":
        """Summed over CPUs and groups; None where no group has a quota, or nobody says so."""
        total = None
        for file in self.files:
            counters = dict(line.split()[:2] for line in procfs.text(file).splitlines() if line.count(" ") == 1)
            # Without a quota there are no periods, and nothing is ever taken.
            if counters.get("nr_periods", "0") == "0":
                continue
            micro = counters.get("throttled_usec")
            taken = int(micro) if micro is not None else int(counters.get("throttled_time", 0)) // 1000
            total = (total or 0) + taken
        return total
