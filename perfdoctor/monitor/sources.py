"""One sample of everything that can be seen from outside the job."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TypeVar

from ..recording.host import HostSample, JobSample, NeighbourSample, Throttling
from .cgroup import Cgroups, throttled_between
from .gpu import NvmlGpus
from .neighbours import Neighbours
from .processes import ProcessStat, scan
from .system import CpuClock, SwapClock, read_available_bytes, read_clock_mhz, read_pressure
from .tree import JobTree

SCAN_INTERVAL_S = 2.0
"""Every process of the machine is read at most this often."""
MOST_OWN_CPUS = 0.01
"""Of one core, for samples and again for scans: where either costs more, it becomes rarer."""

T = TypeVar("T")


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

    def read(self, others: Collection[int] = ()) -> HostSample:
        """What happened since the last call. `others`: see `JobTree.read`."""
        cost_begin = time.thread_time_ns()
        scanned = self._scan_when_due()
        scan_end = time.thread_time_ns()
        now_ns = time.perf_counter_ns()
        interval_ns, self._read_ns = max(1, now_ns - self._read_ns), now_ns
        own_before_ns, self._own_ns = self._own_ns, time.process_time_ns()
        job = self._attempt("job", lambda: self._read_job(scanned or (), others))
        cpus = self._attempt("cpus", self._cpus.read) if self._cpus is not None else None
        gpus = self._attempt("gpus", self._gpus.read)
        ours = self._tree.pids if self._tree is not None else frozenset()
        sample = HostSample(
            monotonic_ns=now_ns,
            interval_ns=interval_ns,
            job=job,
            cpus=cpus,
            throttling=self._attempt("throttling", self._read_throttling),
            pressure_share=self._attempt("pressure", lambda: self._read_pressure("cpu")),
            memory_pressure_share=self._attempt("memory pressure", lambda: self._read_pressure("memory")),
            memory_available_bytes=self._attempt("memory", self._read_available),
            swap_in_bytes=self._attempt("swap", self._swap.read) if self._swap is not None else None,
            neighbours=self._attempt("neighbours", lambda: self._read_neighbours(scanned)),
            gpus=gpus,
            job_gpu_pids=tuple(sorted({p.pid for gpu in gpus or () for p in gpu.processes if p.pid in ours})),
            monitor_cpus=round((self._own_ns - own_before_ns) / interval_ns, 4),
            clock_mhz=self._attempt("clock", lambda: read_clock_mhz(self._root)),
        )
        self._scan_cost_ns = scan_end - cost_begin if scanned is not None else self._scan_cost_ns
        self.cost_ns = time.thread_time_ns() - scan_end
        return sample

    def _scan_when_due(self) -> tuple[ProcessStat, ...] | None:
        due_ns = max(SCAN_INTERVAL_S * 1e9, self._scan_cost_ns / MOST_OWN_CPUS)
        needed = self._tree is not None and not self._tree.lists_children
        if not needed and time.perf_counter_ns() - self._scan_ns < due_ns:
            return None
        self._scan_ns = time.perf_counter_ns()
        return self._attempt("scan", scan)

    def _read_job(self, scanned: tuple[ProcessStat, ...], others: Collection[int]) -> JobSample | None:
        return None if self._tree is None else self._tree.read(scanned, others)

    def _read_neighbours(self, scanned: tuple[ProcessStat, ...] | None) -> NeighbourSample | None:
        if scanned is None or self._neighbours is None or self._tree is None:
            return None
        return self._neighbours.read(scanned, self._tree.pids)

    def _read_throttling(self) -> Throttling | None:
        before, self._throttling = self._throttling, self._groups.throttling(self._root_pid)
        return throttled_between(before, self._throttling)

    def _read_pressure(self, resource: str) -> float:
        own = self._groups.pressure_file(resource, self._root_pid)
        return read_pressure(own if own is not None else self._root / "proc/pressure" / resource)

    def _read_available(self) -> int:
        machine = read_available_bytes(self._root)
        group = self._groups.memory_available_bytes(self._root_pid)
        return machine if group is None else min(machine, group)
