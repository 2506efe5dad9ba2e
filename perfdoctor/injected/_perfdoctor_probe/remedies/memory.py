"""Memory that is given back too eagerly: by glibc to the kernel, by torch to the CUDA driver."""

import ctypes

from .. import procfs
from .base import Remedy, Switch, UnsuitableError

# From malloc.h: the first argument of mallopt.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -2, -3, -4
_LARGEST = 2**31 - 1
"""mallopt takes an int."""
_TOP_PAD_BYTES = 256 << 20
_DEFAULT_TOP_PAD = 128 << 10
_DEFAULT_MMAP_MAX = 65536
_SMALLEST_THRESHOLD = 128 << 10
_LARGEST_THRESHOLD = 32 << 20
"""glibc starts at the one and never raises it beyond the other by itself (M_MMAP_THRESHOLD in mallopt(3))."""
_MMAPPED = 2
"""The bit of a chunk's size field that says so."""
_TRIES = 3
_LARGEST_GAP = 1 << 30
_SMALLEST_GAP = 64 << 10
_GAP_RATIO = 0.94
"""From one size of gap to the next: of each up to 6 % is left, and taken as a smaller one."""


class Malloc(Remedy):
    """glibc serves blocks of any size from its heap, and keeps what is freed there.

    glibc has no call that reads its thresholds, so the one in force is found by asking for blocks. It moves by
    itself until mallopt is first called and stands still from then on: afterwards the job has the threshold that it
    had, but a fixed one.
    """

    settle = 6
    drains = 4
    heap: "Heap | None" = None
    """That of the process, as it was before the first change; remedies come and go."""

    def apply(self) -> None:
        libc = ctypes.CDLL(None)
        if not hasattr(libc, "mallopt") or not hasattr(libc, "gnu_get_libc_version"):
            raise UnsuitableError("the C library is not glibc")
        if procfs.libraries()["allocator"] != "glibc":
            raise UnsuitableError("another allocator stands in for glibc's")
        if self.heap is None:
            Malloc.heap = Heap(libc)
        self.heap.open_gaps()
        for option, value in (
            (_MMAP_MAX, 0),
            (_TRIM_THRESHOLD, _LARGEST),
            (_TOP_PAD, _TOP_PAD_BYTES),
        ):
            self.heap.set(option, value)

    def withdraw(self) -> None:
        heap = self.heap
        if heap is None:
            return
        for option, value in (
            (_MMAP_MAX, _DEFAULT_MMAP_MAX),
            (_MMAP_THRESHOLD, heap.threshold),
            (_TRIM_THRESHOLD, 2 * heap.threshold),  # as glibc sets it along with a threshold that moves
            (_TOP_PAD, _DEFAULT_TOP_PAD),
        ):
            heap.set(option, value)
        heap.take_gaps()

    def drain(self) -> None:
        self.heap.take_gaps()


class Heap:
    """glibc's, which has no end of its own to go back to.

    Once it has grown, small blocks high up in it keep it from shrinking, and what is free below them would serve the
    job's large blocks from then on, whatever the thresholds: of 42,000 page faults a step none was left after the
    sixth withdrawal. So what is free above its old end is taken, untouched. What the job still holds there becomes
    free in the course of the next steps, and is taken then.
    """

    def __init__(self, libc) -> None:
        libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        libc.free.restype, libc.free.argtypes = None, [ctypes.c_void_p]
        libc.sbrk.restype, libc.sbrk.argtypes = ctypes.c_void_p, [ctypes.c_ssize_t]
        self.libc = libc
        self.threshold = mmap_threshold(libc)
        self.end = libc.sbrk(0)
        self.gaps: "list[int]" = []

    def set(self, option: int, value: int) -> None:
        """A setting of mallopt."""
        if not self.libc.mallopt(option, value):
            raise RuntimeError(f"mallopt({option}, {value}) failed")

    def open_gaps(self) -> None:
        """Give back what was taken."""
        while self.gaps:
            self.libc.free(self.gaps.pop())

    def take_gaps(self) -> None:
        """Take what is free above the old end, in blocks from the largest size down."""
        libc, natural, size = self.libc, [], _LARGEST_GAP
        # What is free goes back to the kernel first: what is taken then holds no memory.
        libc.malloc_trim(0)
        while size > _SMALLEST_GAP:
            end = libc.sbrk(0)
            block = libc.malloc(size)
            if not block:
                raise MemoryError
            if _is_mapped(block) or libc.sbrk(0) != end:
                libc.free(block)  # nothing free is as large: it came from the kernel
                size = int(size * _GAP_RATIO)
            elif self.end <= block < end:
                self.gaps.append(block)
            else:
                natural.append(block)
        for block in natural:
            libc.free(block)


def mmap_threshold(libc) -> int:
    """The size in bytes, to 6 %, from which glibc now asks the kernel for each block.

    A block freed in the wrong order would itself move the threshold, so all are freed at the end, largest last, after
    the threshold has been fixed. None is ever touched: they take address space, no memory.
    """
    held = []

    def is_mapped(size: int) -> bool:
        # Several: the first may come from what is free in the heap, whatever the threshold.
        for _ in range(_TRIES):
            block = libc.malloc(size)
            if not block:
                raise MemoryError
            held.append(block)
            if _is_mapped(block):
                return True
        return False

    low, high = _SMALLEST_THRESHOLD, _LARGEST_THRESHOLD
    try:
        while high > 1.06 * low:
            middle = int((low * high) ** 0.5)
            if is_mapped(middle):
                high = middle
            else:
                low = middle
    finally:
        libc.mallopt(_MMAP_THRESHOLD, high)
        for block in held:
            libc.free(block)
    return high


def _is_mapped(block: int) -> bool:
    """Whether the kernel was asked for this very block."""
    return bool(ctypes.c_size_t.from_address(block - ctypes.sizeof(ctypes.c_size_t)).value & _MMAPPED)


class EmptyCache(Switch):
    """Calls of `torch.cuda.empty_cache` return at once."""

    needs = ("calls",)

    def read(self) -> bool:
        return "empty_cache" in self.probe.calls.muted

    def set(self, value: bool) -> None:
        (self.probe.calls.muted.add if value else self.probe.calls.muted.discard)("empty_cache")
