"""What holds this process back from outside, and may hold back one rank alone: a CPU quota, a slower CPU."""

import os

import torch

from .procfs import text

_UNIFIED = ("", "unified")
_CPU = ("cpu,cpuacct", "cpu")
"""Where the trees of control groups are mounted, below /sys/fs/cgroup."""
_IN_US = {"throttled_usec": 1, "throttled_time": 1000}
"""Of `cpu.stat`: v2's field and v1's, and how many of them are a microsecond."""


class HeldBack:
    """What is sampled of a rank among others, and of no other process."""

    def __init__(self) -> None:
        self.among_others = False
        """Remembered: a job may leave its process group before the last sample."""

    def counters(self) -> dict:
        """Empty without others. About 0.1 ms."""
        distributed = torch.distributed
        if not self.among_others and distributed.is_available() and distributed.is_initialized():
            self.among_others = distributed.get_world_size() > 1
        return {"throttled_us": throttled_us(), "clock_mhz": clock_mhz()} if self.among_others else {}


def throttled_us(root: str = "/") -> "int | None":
    """For how long quotas have stopped the control groups that this process is in, summed over CPUs; None where no
    group says. A quota may sit on any group above its own."""
    found = []
    for line in text(os.path.join(root, "proc/self/cgroup")).splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" or "cpu" in controllers.split(","):
            for mount in _UNIFIED if number == "0" else _CPU:
                found += _of_groups(os.path.join(root, "sys/fs/cgroup", mount), path.strip("/"))
    return sum(found) if found else None


def _of_groups(tree: str, path: str) -> "list[int]":
    """Of a group and those above it, as far as they tell."""
    parts = path.split("/") if path else []
    found = []
    for length in range(len(parts) + 1):
        for line in text(os.path.join(tree, *parts[:length], "cpu.stat")).splitlines():
            name, _, value = line.partition(" ")
            if name in _IN_US:
                found.append(int(value) // _IN_US[name])
    return found


def clock_mhz(root: str = "/") -> "float | None":
    """Of the CPU that this thread is on; None where the system does not show it, as on most virtual machines."""
    fields = text(os.path.join(root, "proc/thread-self/stat")).rpartition(")")[2].split()
    if len(fields) < 37:
        return None
    khz = text(os.path.join(root, f"sys/devices/system/cpu/cpu{fields[36]}/cpufreq/scaling_cur_freq")).strip()
    return int(khz) / 1000 if khz.isdigit() else None
