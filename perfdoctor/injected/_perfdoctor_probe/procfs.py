"""Counters of this process and thread from /proc and getrusage; empty where the system has none.

`getrusage` comes through ctypes, because the `resource` module is not among those that torch imports, and a
user may have a `resource.py`.
"""

import ctypes
import os

from . import affinity

_RUSAGE_COUNTS = (
    "maxrss ixrss idrss isrss minflt majflt nswap inblock oublock msgsnd msgrcv nsignals nvcsw nivcsw"
).split()


class _Rusage(ctypes.Structure):
    _fields_ = [
        ("utime", ctypes.c_long * 2),
        ("stime", ctypes.c_long * 2),
        *((name, ctypes.c_long) for name in _RUSAGE_COUNTS),
    ]


def _read(path: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, 65536).decode("ascii", "replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def thread_delays() -> "tuple[int, int] | None":
    """(microseconds that the calling thread was runnable without a CPU, times it got one), since it started."""
    fields = _read("/proc/thread-self/schedstat").split()
    return (int(fields[1]) // 1000, int(fields[2])) if len(fields) == 3 else None


def thread_cpu_ns(native: "int | str") -> int:
    """That a thread of this process has been on a CPU, since it started; 0 where that is not known."""
    return int((text(f"/proc/self/task/{native}/schedstat").split() or ("0",))[0])


def thread_delay_us() -> "int | None":
    """Time the calling thread was runnable without a CPU, since it started."""
    delays = thread_delays()
    return delays[0] if delays else None


_held = ctypes.PyDLL(None)
"""C functions called without giving the interpreter lock back: who measures waits for it must not add any."""
_SCHEDSTAT = b"/proc/thread-self/schedstat"


def thread_delay_ns() -> "int | None":
    """The same in nanoseconds, without giving the interpreter lock back. About 8 us."""
    descriptor = _held.open(_SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC)
    if descriptor < 0:
        return None
    text = ctypes.create_string_buffer(96)
    _held.read(descriptor, text, 95)
    _held.close(descriptor)
    fields = text.value.split()
    return int(fields[1]) if len(fields) == 3 else None


def counters() -> dict:
    """Of the whole process, with the calling thread's run delay. Costs about 45 us."""
    usage = _Rusage()
    ctypes.CDLL(None).getrusage(0, ctypes.byref(usage))
    return {
        "utime_us": usage.utime[0] * 1_000_000 + usage.utime[1],
        "stime_us": usage.stime[0] * 1_000_000 + usage.stime[1],
        "minflt": usage.minflt,
        "nivcsw": usage.nivcsw,
        "maxrss_kb": usage.maxrss,
        "delay_us": thread_delay_us(),
        "rchar": read_bytes(),
    }


class PageFaults:
    """Minor page faults of the whole process, all threads. A reading costs about 2 us."""

    def __init__(self) -> None:
        self.usage = _Rusage()
        self.at = ctypes.byref(self.usage)

    def read(self) -> int:
        _held.getrusage(0, self.at)
        return self.usage.minflt


def read_bytes() -> int:
    """Through system calls, since the process started; 0 where the system does not say."""
    for line in _read("/proc/self/io").splitlines():
        name, _, value = line.partition(": ")
        if name == "rchar":
            return int(value)
    return 0


def worker_counters() -> dict:
    """Of a data-loader worker: its thread's run delay, what it read, its intra-op threads and CPUs."""
    import torch

    return {
        "delay_us": thread_delay_us(),
        "rchar": read_bytes(),
        "intra_op": torch.get_num_threads(),
        "affinity": affinity.cpus(),
    }


def available_bytes() -> int:
    """Memory that may still be used, by the machine's and the container's account; 0 where neither says."""
    lines = dict(line.partition(":")[::2] for line in text("/proc/meminfo").splitlines())
    machine = int(lines.get("MemAvailable", "0").split()[0]) * 1024
    limit, used = (_read(f"/sys/fs/cgroup/memory.{name}").strip() for name in ("max", "current"))
    return max(0, min(machine, int(limit) - int(used))) if limit.isdigit() and used.isdigit() else machine


_POOLS = ("libgomp", "libiomp5", "libomp", "libmkl_rt", "openblas", "libtbb", "libblis")
_ALLOCATORS = ("jemalloc", "tcmalloc", "mimalloc")


def libraries() -> dict:
    """Thread pools and allocators mapped into this process. Reads /proc/self/maps: 1 to 5 ms, once."""
    pools, allocator = set(), "glibc"
    for path in mapped():
        name = os.path.basename(path)
        for pool in _POOLS:
            if name.startswith(pool) or (pool == "openblas" and pool in name):
                pools.add(pool)
        for known in _ALLOCATORS:
            if known in name:
                allocator = known
    return {"pools": sorted(pools), "allocator": allocator}


def mapped() -> "set[str]":
    """Paths of the shared libraries in this process."""
    return {line.rpartition(" ")[2] for line in text("/proc/self/maps").splitlines() if ".so" in line}


def text(path: str) -> str:
    """All of a file, however long; "" where it cannot be read."""
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""
