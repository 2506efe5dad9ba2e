"""OpenBLAS's pools of threads, as NumPy's and SciPy's wheels bring one each: beside torch's team, and as large.

Their threads wait for work by asking for it again and again: after one product of 300 x 300 a thread was on its CPU for
104 ms more, one of torch's team for 5. A step that calls NumPy's linear algebra more often than that never gets the CPU
back.
"""

import ctypes
import os
import time
from _thread import get_native_id

from . import procfs
from .rows import rounded

_PREFIXES, _SUFFIXES = ("", "scipy_"), ("", "64_")
"""Of the functions' names, by build; with the latter, sizes have 64 bits."""
_SIZE = 256
"""Of a product of matrices that all threads take part in: 34 million multiplications."""
_LOOK_S = 0.04
_AT_WORK = 0.4
"""Of a look, that a thread has to be on a CPU to be at work."""
_LOOKS = 10
"""For all threads to come to rest, at most."""
_ROWS, _AS_IT_IS = 101, 111
"""cblas.h: CblasRowMajor, CblasNoTrans."""
_OWN_THREADS = 1
"""cblas.h: OPENBLAS_THREAD. One that was built with OpenMP shares torch's team."""


class Pool:
    """One library's."""

    def __init__(self, path: str, library, prefix: str, suffix: str) -> None:
        self.name = os.path.basename(path)
        self.count = getattr(library, f"{prefix}openblas_get_num_threads{suffix}")
        self.set = getattr(library, f"{prefix}openblas_set_num_threads{suffix}")
        self._product = getattr(library, f"{prefix}cblas_dgemm{suffix}", None)
        self._integer = ctypes.c_int64 if suffix else ctypes.c_int32

    def work(self) -> None:
        """One product."""
        size, whole = self._integer(_SIZE), ctypes.c_double * (_SIZE * _SIZE)
        a, c = whole(), whole()
        one, nothing = ctypes.c_double(1.0), ctypes.c_double(0.0)
        sizes = (size, size, size)
        self._product(_ROWS, _AS_IT_IS, _AS_IT_IS, *sizes, one, a, size, a, size, nothing, c, size)

    @property
    def can_work(self) -> bool:
        return self._product is not None


def pools() -> "list[Pool]":
    """Of all libraries in this process that have threads of their own. Reads /proc/self/maps: 1 to 5 ms."""
    found = []
    for path in sorted(procfs.mapped()):
        if "openblas" not in os.path.basename(path):
            continue
        library = ctypes.CDLL(path)
        for prefix, suffix in ((one, other) for one in _PREFIXES for other in _SUFFIXES):
            parallel = getattr(library, f"{prefix}openblas_get_parallel{suffix}", None)
            if parallel is not None and parallel() == _OWN_THREADS:
                found.append(Pool(path, library, prefix, suffix))
                break
    return found


class PoolUse:
    """How much CPU the threads of these pools use, from here to `rows`."""

    def __init__(self) -> None:
        self.began_ns = time.perf_counter_ns()
        self.pools = [pool for pool in pools() if pool.count() > 1 and pool.can_work]
        self.before = _cpu_ns() if self.pools else {}

    def rows(self) -> "list[dict]":
        """By pool. Which threads are its own is told by having them work, with nothing else to do: a tenth of a second,
        most of it until the others rest."""
        if not self.pools:
            return []
        wall_ns, now = max(1, time.perf_counter_ns() - self.began_ns), _cpu_ns()
        used = {thread: now[thread] - self.before[thread] for thread in now if thread in self.before}
        found = []
        for pool in self.pools:
            if not any(not _at_work(_rest) for _ in range(_LOOKS)):
                break  # somebody never rests: who works for whom cannot be told
            cores = sum(used.get(thread, 0) for thread in _at_work(pool.work)) / wall_ns
            found.append({"library": pool.name, "threads": pool.count(), "cores": rounded(cores)})
        return found


def _rest() -> None:
    time.sleep(_LOOK_S)


def _at_work(do) -> "set[str]":
    """Threads but for this one that are on a CPU while it does something over and over, for the time of a look."""
    before, began = _cpu_ns(), time.perf_counter()
    while time.perf_counter() - began < _LOOK_S:
        do()
    took_ns, now = (time.perf_counter() - began) * 1e9, _cpu_ns()
    here = str(get_native_id())
    return {one for one in now if one != here and now[one] - before.get(one, 0) >= _AT_WORK * took_ns}


def _cpu_ns() -> "dict[str, int]":
    """On a CPU so far, by thread; empty where the system does not say. 10 us each."""
    try:
        return {thread: procfs.thread_cpu_ns(thread) for thread in os.listdir("/proc/self/task")}
    except OSError:  # no such folder
        return {}
