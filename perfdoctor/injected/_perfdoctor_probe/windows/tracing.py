"""What `tracemalloc` costs: steps of the job whose allocations it traces, and steps with it looking away, in turns.

In the latter Python takes memory as it did before `tracemalloc.start()`, and gives it back as it does under it: no
trace is lost, and none is left of memory that is gone. Memory that such a step takes and keeps is in no snapshot, as if
it had been there before; so it is for a few steps, once.
"""

import _tracemalloc
import ctypes
import sys
import time

_ROUNDS = 5
_LIMIT_NS = 10_000_000_000
"""The round in which it is reached is the last."""
_DOMAINS = (1, 2)
"""`PYMEM_DOMAIN_MEM` and `PYMEM_DOMAIN_OBJ`: whoever calls these holds the interpreter's lock, as we do while we change
them. The third, raw memory, is taken without, and little of it."""


class _Allocator(ctypes.Structure):
    """`PyMemAllocatorEx`; functions by their address."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("context", "malloc", "calloc", "realloc", "free")]


_APART = 2 * ctypes.sizeof(_Allocator)
"""`tracemalloc` keeps the allocators that it stands in front of in a structure of three, raw memory's in the middle."""


class Untraced:
    """Allocations that `tracemalloc` does not hear of."""

    def __init__(self) -> None:
        self.python = ctypes.PyDLL(None)
        self.tracing = [self._current(domain) for domain in _DOMAINS]

    def obstacle(self) -> str:
        """Why `begin` must not be called, or ""."""
        if not _tracemalloc.is_tracing():
            return "nobody traces Python's allocations"
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            return "Python runs without its lock"
        memory, objects = self.tracing
        known = memory.malloc == objects.malloc and bool(memory.context) and bool(objects.context)
        if not known or objects.context - memory.context != _APART:
            return "something stands between Python and `tracemalloc`"
        behind = [self._behind(one) for one in self.tracing]
        if any(one.context for one in behind) or behind[0].malloc != behind[1].malloc:
            return "Python's allocator is not its own (PYTHONMALLOC=debug)"
        return ""

    def begin(self) -> None:
        """From here on."""
        for domain, traced in zip(_DOMAINS, self.tracing):
            plain = self._behind(traced)
            self._set(domain, _Allocator(traced.context, plain.malloc, plain.calloc, traced.realloc, traced.free))

    def end(self) -> None:
        """As it was, unless the job has ended the tracing meanwhile."""
        for domain, traced in zip(_DOMAINS, self.tracing):
            if self._current(domain).context == traced.context:
                self._set(domain, traced)

    def holds(self) -> bool:
        """Whether the job traces on as it did."""
        pairs = zip(_DOMAINS, self.tracing)
        return all(self._current(domain).context == traced.context for domain, traced in pairs)

    @staticmethod
    def _behind(traced: _Allocator) -> _Allocator:
        return ctypes.cast(traced.context, ctypes.POINTER(_Allocator)).contents

    def _current(self, domain: int) -> _Allocator:
        found = _Allocator()
        self.python.PyMem_GetAllocator(domain, ctypes.byref(found))
        return found

    def _set(self, domain: int, allocator: _Allocator) -> None:
        self.python.PyMem_SetAllocator(domain, ctypes.byref(allocator))


class TracingWindow:
    """Opened at one step boundary, closed at another."""

    name = "tracing"
    microbenchmark = final_microbenchmark = None

    def __init__(self) -> None:
        self.untraced = Untraced()
        self.is_untraced = False
        self.block = 0
        """Steps of one kind in a row: as long as a window usually is."""
        self.took: "tuple[list, list]" = [], []
        """Milliseconds of CPU time per step: traced and not."""

    def obstacle(self) -> str:
        """Why this cannot be done now, or ""."""
        return self.untraced.obstacle()

    def open(self) -> None:
        self.opened_ns = time.perf_counter_ns()
        self.began_ns = time.thread_time_ns()

    def stays(self, steps: int) -> bool:
        """At each boundary from the first block's end on: the other kind's turn, until there are rounds enough."""
        self.block = self.block or steps
        if steps % self.block:
            return True
        if not self.untraced.holds():
            return False
        self.took[self.is_untraced].append((time.thread_time_ns() - self.began_ns) / self.block / 1e6)
        blocks = steps // self.block
        late = time.perf_counter_ns() - self.opened_ns > _LIMIT_NS
        if blocks % 2 == 0 and (late or blocks >= 2 * _ROUNDS):
            return False
        # One, two of the other kind, two of the first: what drifts disturbs both alike.
        self._switch(blocks % 4 in (1, 2))
        self.began_ns = time.thread_time_ns()
        return True

    def _switch(self, is_untraced: bool) -> None:
        if is_untraced and not self.is_untraced:
            self.untraced.begin()
        elif self.is_untraced and not is_untraced:
            self.untraced.end()
        self.is_untraced = is_untraced

    def closable(self) -> bool:
        """Nothing of it depends on where the thread is."""
        return True

    def is_gone(self) -> bool:
        """Never: it is the process's."""
        return False

    def abandon(self) -> None:
        """Trace again."""
        self._switch(False)

    def close(self, steps: int) -> dict:
        """What `steps` steps took."""
        self.abandon()
        traced, untraced = self.took
        if not untraced:
            return {"missing": "the job ended the tracing meanwhile"}
        return {"frames": _tracemalloc.get_traceback_limit(), "traced_ms": traced, "untraced_ms": untraced}
