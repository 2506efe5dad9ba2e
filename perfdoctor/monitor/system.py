"""The whole machine's counters: CPU time, pressure, memory, swap."""

from __future__ import annotations

import os
import time
from pathlib import Path

from ..recording.host import CpuSample
from .processes import PAGE_BYTES, TICKS_PER_SECOND, read_text


class CpuClock:
    """Differences of `/proc/stat` between calls."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._path = str(root / "proc/stat")
        self._cpus = os.sched_getaffinity(0)
        self._ticks = self._read()
        self._read_ns = time.perf_counter_ns()

    def read(self) -> CpuSample:
        """CPU use since the last call. Raises OSError or ValueError when the file cannot be read."""
        now, now_ns = self._read(), time.perf_counter_ns()
        per_core = max(1, now_ns - self._read_ns) / 1e9 * TICKS_PER_SECOND
        # iowait may go backwards (proc.rst), so no difference is taken for granted.
        cores = [round(max(0, later - earlier) / per_core, 4) for earlier, later in zip(self._ticks, now, strict=True)]
        self._ticks, self._read_ns = now, now_ns
        return CpuSample(*cores)

    def _read(self) -> tuple[int, int, int, int]:
        busy = idle = iowait = steal = 0
        for line in read_text(self._path).splitlines():
            if not line.startswith("cpu"):
                break  # the CPU lines come first
            name, *fields = line.split()
            if name == "cpu" or int(name[3:]) not in self._cpus:
                continue
            # user nice system idle iowait irq softirq steal; guest time is inside user.
            ticks = [int(value) for value in fields[:8]]
            busy += ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]
            idle, iowait, steal = idle + ticks[3], iowait + ticks[4], steal + ticks[7]
        return busy, idle, iowait, steal


class SwapClock:
    """Bytes swapped in between calls, whole machine."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._path = str(root / "proc/vmstat")
        self._pages = self._read()

    def read(self) -> int:
        """Bytes since the last call. Raises OSError or ValueError."""
        before, self._pages = self._pages, self._read()
        return max(0, self._pages - before) * PAGE_BYTES

    def _read(self) -> int:
        return _number_after(read_text(self._path), "pswpin ")


def read_available_bytes(root: Path = Path("/")) -> int:
    """Memory that could be had without swapping, whole machine. Raises OSError or ValueError."""
    return _number_after(read_text(str(root / "proc/meminfo")), "MemAvailable:") * 1024


def read_clock_mhz(root: Path = Path("/")) -> float | None:
    """Mean clock of the CPUs that the job may use, MHz; None where the system shows none, as virtual machines do."""
    files = [root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq" for cpu in os.sched_getaffinity(0)]
    clocks = [int(read_text(str(file))) / 1000 for file in files if file.exists()]
    return round(sum(clocks) / len(clocks), 1) if clocks else None


def read_pressure(path: Path) -> float:
    """Share of the last 10 s in which some task waited for the resource (`some avg10` of a PSI file), 0 to 1.

    Raises OSError where the kernel keeps no pressure, ValueError for another format.
    """
    text = read_text(str(path))
    _, found, rest = text.partition("some avg10=")
    if not found:
        raise ValueError(f"no avg10 in {path.name}")
    return round(float(rest.split(maxsplit=1)[0]) / 100, 4)


def _number_after(text: str, label: str) -> int:
    for line in text.splitlines():
        if line.startswith(label):
            return int(line.removeprefix(label).split()[0])
    raise ValueError(f"no {label.strip(' :')}")
