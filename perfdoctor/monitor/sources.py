"""One sample of everything that can be seen from outside the job."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from .cgroup import Cgroups, Throttling, throttled_between
from .gpu import GpuReading, NvmlGpus
from .neighbours import NeighbourReading, Neighbours
from .processes import ProcessStat, scan
from .system import CpuClock, CpuReading, SwapClock, read_available_bytes, read_pressure
from .tree import JobReading, JobTree

SCAN_INTERVAL_S = 2.0
"""Every process of the machine is read at most this often."""
MOST_OWN_CPUS = 0.01
"""Of one core, for samples and again for scans: where either costs more, it becomes rarer."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HostReading:
    """One sample. It covers the `interval_ns` before `monotonic_ns`; a source that failed is None."""

    wall_ns: int
    """Unix time."""
    monotonic_ns: int
    """CLOCK_MONOTONIC, which all processes of a machine share."""
    interval_ns: int
    job: JobReading | None
    cpus: CpuReading | None
    throttling: Throttling | None
    """None also without a CPU control group."""
    pressure_avg10: float | None
    """PSI cpu `some` of the job's control group, or of the machine: fraction of 1."""
    memory_available_bytes: int | None
    """On the machine, or below the control group's limit when that is less."""
    swap_in_bytes: int | None
    """By the whole machine."""
    oom_kills: int | None
    """In the job's control group since it was made."""
    neighbours: NeighbourReading | None
    """None also between two scans."""
    gpus: tuple[GpuReading, ...] | None
    job_gpu_pids: tuple[int, ...]
    """The job's processes among those on the GPUs; none in a container, where NVML tells the host's pids."""
    own_cpus: float
    """CPU of the whole perfdoctor process, in cores."""
    sample_cpu_ns: int
    """CPU time of taking this sample."""
    memory_pressure_avg10: float | None = None
    """PSI memory `some` of the job's control group, or of the machine: fraction of 1."""


class Guard:
    """Keeps one failing source from taking the others with it."""

    def __init__(self, on_first_failure: Callable[[str, Exception], None]) -> None:
        self._on_first_failure = on_first_failure
        self._failed: set[str] = set()

    def attempt(self, source: str, read: Callable[[], T]) -> T | None:
        """What `read` returns; None when it raises, which is told once for each source."""
        try:
            return read()
        except Exception as error:  # whatever it is, the job's own work goes on
            if source not in self._failed:
                self._failed.add(source)
                self._on_first_failure(source, error)
            return None


class Sources:
    """All that is sampled, with the counters of the previous sample."""

    def __init__(self, root_pid: int, guard: Guard, root: Path, gpus: NvmlGpus | None) -> None:
        """Takes the first readings, that later ones are compared with. Starting NVML may take a second."""
        self._root_pid = root_pid
        self._root = root
        self._attempt = guard.attempt
        self._groups = Cgroups(root)
        self._gpus = gpus if gpus is not None else NvmlGpus()
        self._throttling = self._attempt("throttling", lambda: self._groups.throttling(root_pid)) or ()
        self._cpus = self._attempt("cpus", lambda: CpuClock(root))
        self._swap = self._attempt("swap", lambda: SwapClock(root))
        self._neighbours = self._attempt("neighbours", lambda: Neighbours(scan()))
        self._tree = self._attempt("job", lambda: JobTree(root_pid))
        self._read_ns = self._scan_ns = time.perf_counter_ns()
        self._own_ns = time.process_time_ns()
        self.cost_ns = 0
        """CPU time of the last sample without a scan of all processes."""
        self._scan_cost_ns = 0

    def close(self) -> None:
        """Lets go of NVML."""
        self._gpus.close()

    def read(self) -> HostReading:
        """What happened since the last call."""
        cost_begin = time.thread_time_ns()
        scanned = self._scan_when_due()
        scan_end = time.thread_time_ns()
        now_ns = time.perf_counter_ns()
        job = self._attempt("job", lambda: self._read_job(scanned or ()))
        cpus = self._attempt("cpus", self._cpus.read) if self._cpus is not None else None
        gpus = self._attempt("gpus", self._gpus.read)
        neighbours = self._attempt("neighbours", lambda: self._read_neighbours(scanned))
        throttling = self._attempt("throttling", self._read_throttling)
        pressure = self._attempt("pressure", self._read_pressure)
        memory_pressure = self._attempt("memory pressure", self._read_memory_pressure)
        available = self._attempt("memory", self._read_available)
        swap_in = self._attempt("swap", self._swap.read) if self._swap is not None else None
        oom_kills = self._attempt("oom_kills", lambda: self._groups.oom_kills(self._root_pid))
        interval_ns, self._read_ns = max(1, now_ns - self._read_ns), now_ns
        own_ns = time.process_time_ns()
        own_cpus, self._own_ns = (own_ns - self._own_ns) / interval_ns, own_ns
        cost_end = time.thread_time_ns()
        self._scan_cost_ns = scan_end - cost_begin if scanned is not None else self._scan_cost_ns
        self.cost_ns = cost_end - scan_end
        ours = self._tree.pids if self._tree is not None else frozenset()
        return HostReading(
            wall_ns=time.time_ns(),
            monotonic_ns=now_ns,
            interval_ns=interval_ns,
            job=job,
            cpus=cpus,
            throttling=throttling,
            pressure_avg10=pressure,
            memory_available_bytes=available,
            swap_in_bytes=swap_in,
            oom_kills=oom_kills,
            neighbours=neighbours,
            gpus=gpus,
            job_gpu_pids=tuple(sorted({p.pid for gpu in gpus or () for p in gpu.processes if p.pid in ours})),
            own_cpus=round(own_cpus, 4),
            sample_cpu_ns=cost_end - cost_begin,
            memory_pressure_avg10=memory_pressure,
        )

    def _scan_when_due(self) -> tuple[ProcessStat, ...] | None:
        due_ns = max(SCAN_INTERVAL_S * 1e9, self._scan_cost_ns / MOST_OWN_CPUS)
        needed = self._tree is not None and not self._tree.lists_children
        if not needed and time.perf_counter_ns() - self._scan_ns < due_ns:
            return None
        self._scan_ns = time.perf_counter_ns()
        return self._attempt("scan", scan)

    def _read_job(self, scanned: tuple[ProcessStat, ...]) -> JobReading | None:
        return None if self._tree is None else self._tree.read(scanned)

    def _read_neighbours(self, scanned: tuple[ProcessStat, ...] | None) -> NeighbourReading | None:
        if scanned is None or self._neighbours is None or self._tree is None:
            return None
        return self._neighbours.read(scanned, self._tree.pids)

    def _read_throttling(self) -> Throttling | None:
        before, self._throttling = self._throttling, self._groups.throttling(self._root_pid)
        return throttled_between(before, self._throttling)

    def _read_pressure(self) -> float:
        own = self._groups.cpu_pressure_file(self._root_pid)
        return read_pressure(own if own is not None else self._root / "proc/pressure/cpu")

    def _read_memory_pressure(self) -> float:
        own = self._groups.memory_pressure_file(self._root_pid)
        return read_pressure(own if own is not None else self._root / "proc/pressure/memory")

    def _read_available(self) -> int:
        machine = read_available_bytes(self._root)
        group = self._groups.memory_available_bytes(self._root_pid)
        return machine if group is None else min(machine, group)
