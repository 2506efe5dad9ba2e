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


class Malloc(Remedy):
    """glibc serves blocks of any size from its heap, and keeps what is freed there.

    glibc has no call that reads its thresholds, so the one in force is found by asking for blocks. It moves by
    itself until mallopt is first called and stands still from then on: afterwards the job has the threshold that it
    had, but a fixed one.
    """

    settle = 6
    threshold = 0

    def apply(self) -> None:
        libc = self.libc = ctypes.CDLL(None)
        if not hasattr(libc, "mallopt") or not hasattr(libc, "gnu_get_libc_version"):
            raise UnsuitableError("the C library is not glibc")
        if procfs.libraries()["allocator"] != "glibc":
            raise UnsuitableError("another allocator stands in for glibc's")
        if not self.threshold:
            self.threshold = mmap_threshold(libc)
        for option, value in (
            (_MMAP_MAX, 0),
            (_TRIM_THRESHOLD, _LARGEST),
            (_TOP_PAD, _TOP_PAD_BYTES),
        ):
            self._set(option, value)

    def withdraw(self) -> None:
        if not self.threshold:
            return
        for option, value in (
            (_MMAP_MAX, _DEFAULT_MMAP_MAX),
            (_MMAP_THRESHOLD, self.threshold),
            (_TRIM_THRESHOLD, 2 * self.threshold),  # as glibc sets it along with a threshold that moves
            (_TOP_PAD, _DEFAULT_TOP_PAD),
        ):
            self._set(option, value)
        # Else large blocks would come from what is left of the heap for a while.
        self.libc.malloc_trim(0)

    def _set(self, option: int, value: int) -> None:
        if not self.libc.mallopt(option, value):
            raise RuntimeError(f"mallopt({option}, {value}) failed")


def mmap_threshold(libc) -> int:
    """The size in bytes, to 6 %, from which glibc now asks the kernel for each block.

    A block freed in the wrong order would itself move the threshold, so all are freed at the end, largest last, after
    the threshold has been fixed. None is ever touched: they take address space, no memory.
    """
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.restype, libc.free.argtypes = None, [ctypes.c_void_p]
    held = []

    def is_mapped(size: int) -> bool:
        # Several: the first may come from what is free in the heap, whatever the threshold.
        for _ in range(_TRIES):
            block = libc.malloc(size)
            if not block:
                raise MemoryError
            held.append(block)
            if ctypes.c_size_t.from_address(block - ctypes.sizeof(ctypes.c_size_t)).value & _MMAPPED:
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


class EmptyCache(Switch):
    """Calls of `torch.cuda.empty_cache` return at once."""

    needs = ("calls",)

    def read(self) -> bool:
        return "empty_cache" in self.probe.calls.muted

    def set(self, value: bool) -> None:
        (self.probe.calls.muted.add if value else self.probe.calls.muted.discard)("empty_cache")

    def wanted(self) -> bool:
        return True
