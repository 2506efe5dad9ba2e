"""Steps of which what the job traces does not hear: Python's allocations, or its calls and lines."""

import _tracemalloc
import ctypes
import sys

import torch

from ..settings import tracer
from .with_blocks import opening

_PROFILERS = ("Profile", "enable", "runcall", "runctx", "run")
_BEGINNINGS = {"cProfile": _PROFILERS, "profile": _PROFILERS, "coverage": ("Coverage", "start"), "bdb": ("set_trace",)}
"""What lines call that have such a package trace Python's calls ..."""
_OF_SYS = ("settrace", "setprofile")
"""... and a function of anybody's."""
_DOMAINS = (1, 2)
"""`PYMEM_DOMAIN_MEM` and `PYMEM_DOMAIN_OBJ`: whoever calls these holds the interpreter's lock, as we do while we change
them. The third, raw memory, is taken without, and little of it."""


class _Allocator(ctypes.Structure):
    """`PyMemAllocatorEx`; functions by their address."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("context", "malloc", "calloc", "realloc", "free")]


_APART = 2 * ctypes.sizeof(_Allocator)
"""`tracemalloc` keeps the allocators that it stands in front of in a structure of three, raw memory's in the middle."""


class UntracedAllocations:
    """Allocations that `tracemalloc` does not hear of.

    In such steps Python takes memory as it did before `tracemalloc.start()`, and gives it back as it does under it: no
    trace is lost, and none is left of memory that is gone. Memory that such a step takes and keeps is in no snapshot,
    as if it had been there before; so it is for a few steps, once.
    """

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

    def facts(self) -> dict:
        """How much is kept of each."""
        return {"frames": _tracemalloc.get_traceback_limit()}

    @staticmethod
    def _behind(traced: _Allocator) -> _Allocator:
        return ctypes.cast(traced.context, ctypes.POINTER(_Allocator)).contents

    def _current(self, domain: int) -> _Allocator:
        found = _Allocator()
        self.python.PyMem_GetAllocator(domain, ctypes.byref(found))
        return found

    def _set(self, domain: int, allocator: _Allocator) -> None:
        self.python.PyMem_SetAllocator(domain, ctypes.byref(allocator))


class UntracedCalls:
    """Calls and lines of which no function hears that the job had Python call for them (`sys.setprofile`,
    `sys.settrace`, `cProfile`, `coverage`): as Python itself does it while such a function runs.

    Where each ends on the level of the stack on which it began, a profiler's own stack stays what it was.
    """

    def __init__(self, sites) -> None:
        self.python = ctypes.pythonapi
        self.python.PyThreadState_Get.restype = ctypes.c_void_p
        self.thread = None
        self.tracer = tracer()
        self.functions = sys.gettrace(), sys.getprofile()
        self.site = opening(sites, *_BEGINNINGS.get(self.tracer, _OF_SYS)) if self.tracer else -1

    def obstacle(self) -> str:
        """Why `begin` must not be called, or ""."""
        if not self.tracer:
            return "nobody traces Python's calls"
        if not hasattr(self.python, "PyThreadState_EnterTracing"):
            return "Python 3.10 cannot let a trace function wait"
        # With stacks it traces calls itself, and has to hear of the end of all whose beginning it knows.
        return "a profiler of torch's is on" if torch.autograd._profiler_enabled() else ""

    def begin(self) -> None:
        """From here on, in this thread."""
        self.thread = self._thread()
        self.python.PyThreadState_EnterTracing(self.thread)

    def end(self) -> None:
        """As it was; in another thread nothing can be done, nor need it be."""
        if self.thread is not None and self._thread().value == self.thread.value:
            self.python.PyThreadState_LeaveTracing(self.thread)
        self.thread = None

    def holds(self) -> bool:
        """Whether the job traces on as it did."""
        return tracer() == self.tracer and all(
            now is before for now, before in zip((sys.gettrace(), sys.getprofile()), self.functions)
        )

    def facts(self) -> dict:
        """Who traces, and since which line."""
        return {"frames": 0, "tracer": self.tracer, "started_at": self.site}

    def _thread(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.python.PyThreadState_Get())
