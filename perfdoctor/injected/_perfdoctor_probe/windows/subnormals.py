"""The window of subnormal numbers: what a step takes longer because values have faded to nearly nothing.

A step or two under a dispatch mode. Of operators that meet numbers smaller than the smallest normal one, and not 0,
copies of the arguments are kept. Between the steps each is computed again on them, in turns on two threads of our own:
as it is, and with such numbers taken for 0 (`torch.set_flush_denormal`). The setting is of a thread, and of those that
OpenMP starts for it later, so both compute on as many threads as the job does, and the job's own keep theirs. It is the
setting that differs and not the numbers: products of normal numbers can be subnormal too.
"""

import time
from concurrent.futures import ThreadPoolExecutor

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from .. import timeline as parts
from ..hooks.held_out import tensors
from ..rows import milliseconds, operator
from . import innermost
from .innermost import InnermostMode

_BITS = {
    torch.float32: (torch.int32, 0x7F800000, 0x7FFFFFFF),
    torch.float64: (torch.int64, 0x7FF0000000000000, 0x7FFFFFFFFFFFFFFF),
}
"""Of a type: the integer of its size, the exponent's bits, and all bits but the sign."""
_LOOKED = 512
"""Numbers of a tensor that are looked at: a subnormal one can take the CPU 100 to 200 cycles, so one in a few hundred
is felt."""
_LEAST_NUMBERS = 256
"""Of a tensor: in smaller ones they take less than calling the operator."""
_LOOKED_NS = 20_000
"""An operator that takes less is not looked at by the window of repeated work."""
_LEAST = 0.05
"""Of all operators' time: the part of those that meet any from which on it is worth this window."""
_SAMPLES = 3
"""Calls that are kept of one operator with the same shapes."""
_MOST_BYTES = 1 << 28
"""Of copies."""
_TURNS = 3
_LONG_NS = 50_000_000
"""An operator that takes longer has one turn."""
_LIMIT_NS = 3_000_000_000
"""Of computing again: what has had no turn by then counts as what takes no longer."""
_NAMES = 3
_clock = time.perf_counter_ns


def share(tensor) -> float:
    """Of its memory's numbers, some from all over: those that are subnormal. 0 where there are few, or on a device."""
    kind, exponent, magnitude = _BITS.get(tensor.dtype, (None, 0, 0))
    if kind is None or tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return 0.0
    count = tensor.untyped_storage().nbytes() // tensor.element_size()
    if min(count, tensor.numel()) < _LEAST_NUMBERS:
        return 0.0
    apart = count // _LOOKED
    # Odd, or it could be the same column of each row.
    apart = max(1, apart - 1 + apart % 2)
    # As integers: a thread that takes them for 0 does so when it compares.
    seen = tensor.as_strided((min(_LOOKED, -(-count // apart)),), (apart,), 0).view(kind)
    few = ((seen & exponent) == 0) & ((seen & magnitude) != 0)
    return few.count_nonzero().item() / few.numel()


class Suspicion:
    """How much of the operators' time goes into those whose results hold any."""

    def __init__(self) -> None:
        self.spent_ns = self.whole_ns = 0

    def ended(self, args: tuple, result, took_ns: int) -> None:
        """An operator has run. One that returns nothing has written to some of what it was given."""
        self.whole_ns += took_ns
        if took_ns >= _LOOKED_NS and any(map(share, tensors(result if result is not None else args))):
            self.spent_ns += took_ns

    @property
    def asks(self) -> "tuple[str, ...]":
        """The window to open next."""
        return ("subnormals",) if self.spent_ns >= _LEAST * self.whole_ns > 0 else ()


class _Calls:
    """Those of one operator with the same shapes."""

    __slots__ = ("func", "lines", "part", "samples", "shares", "spent_ns")

    def __init__(self, func, part: int) -> None:
        self.func = func
        self.part = part
        self.spent_ns = 0
        self.samples: list = []
        """Copies of arguments."""
        self.shares: "list[float]" = []
        self.lines: "dict[int, int]" = {}
        """Nanoseconds by the line that led there."""


class Subnormals(TorchDispatchMode):
    """Operators that meet subnormal numbers."""

    def __init__(self, sites, loop) -> None:
        super().__init__()
        self.sites = sites
        self.loop = loop
        self.whole_ns = 0
        self.left_bytes = _MOST_BYTES
        self.calls: "dict[tuple, _Calls]" = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Else torch wraps the method below in something that imports Dynamo: a second, for a job without it.
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        known = None
        try:
            if self._can_be_repeated(func):
                with torch._C.DisableTorchFunction():
                    known = self._known(func, args, kwargs, tensors((args, kwargs)))
        except Exception:  # a tensor of an exotic kind
            known = None
        began = _clock()
        result = func(*args, **kwargs)
        took = _clock() - began
        self.whole_ns += took
        try:
            with torch._C.DisableTorchFunction():
                if known is None and self._can_be_repeated(func) and not func._schema.is_mutable:
                    known = self._known(func, args, kwargs, tensors(result))
                if known is not None:
                    known.spent_ns += took
                    line = self.sites.here(1)
                    known.lines[line] = known.lines.get(line, 0) + took
        except Exception:
            pass
        return result

    def _can_be_repeated(self, func) -> bool:
        return (
            func.namespace == "aten"
            and not func.is_view
            and torch.Tag.nondeterministic_seeded not in func.tags
            and self.loop.timeline.stack[-1] != parts.INPUT
        )

    def _known(self, func, args, kwargs, looked_at) -> "_Calls | None":
        """The calls like this one, where some of these tensors hold any; its arguments are copied for the first few."""
        most = max(map(share, looked_at), default=0.0)
        if not most:
            return None
        given = list(tensors((args, kwargs)))
        key = (func, self._part(), *(one.shape for one in given))
        known = self.calls.setdefault(key, _Calls(func, self._part()))
        size = sum(one.numel() * one.element_size() for one in given)
        if len(known.samples) < _SAMPLES and size <= self.left_bytes:
            self.left_bytes -= size
            known.samples.append(tree_map_only(torch.Tensor, torch.Tensor.clone, (args, kwargs)))
            known.shares.append(most)
        return known

    def _part(self) -> int:
        if torch._C._current_graph_task_id() >= 0:
            return parts.BACKWARD
        return parts.OPTIMIZER if self.loop.timeline.stack[-1] == parts.OPTIMIZER else parts.FORWARD

    def summary(self, steps: int) -> dict:
        """Per step; times are ms."""
        calls = sorted((one for one in self.calls.values() if one.samples), key=lambda one: -one.spent_ns)
        saved = _saved_ns(calls)
        by_part = dict.fromkeys((parts.FORWARD, parts.BACKWARD, parts.OPTIMIZER), 0.0)
        by_line: "dict[int, float]" = {}
        by_name: "dict[str, float]" = {}
        for one, ns in zip(calls, saved):
            by_part[one.part] += ns
            name = operator(one.func._schema.name)
            by_name[name] = by_name.get(name, 0.0) + ns
            for line, spent in one.lines.items():
                by_line[line] = by_line.get(line, 0.0) + ns * spent / one.spent_ns
        forward, backward, optimizer = (milliseconds(ns, steps) for ns in by_part.values())
        shares = [each for one, ns in zip(calls, saved) if ns > 0 for each in one.shares]
        names = [name for name in sorted(by_name, key=lambda name: -by_name[name]) if by_name[name] > 0]
        return {
            "ops_ms": milliseconds(self.whole_ns, steps),
            "met_ms": milliseconds(sum(one.spent_ns for one in calls), steps),
            "forward_ms": forward,
            "backward_ms": backward,
            "optimizer_ms": optimizer,
            "share": max(shares, default=0.0),
            "operators": names[:_NAMES],
            "at": max(by_line, key=lambda line: by_line[line], default=-1),
        }


def _saved_ns(calls: "list[_Calls]") -> "list[float]":
    """What each would take less with subnormal numbers taken for 0."""
    saved = [0.0] * len(calls)
    deadline = _clock() + _LIMIT_NS
    with ThreadPoolExecutor(1) as plain, ThreadPoolExecutor(1) as flushing:
        if not flushing.submit(torch.set_flush_denormal, True).result():
            return saved
        for number, one in enumerate(calls):
            if _clock() > deadline:
                break
            as_is = flushed = 0
            for args, kwargs in one.samples:
                turns = _TURNS if one.spent_ns < _LONG_NS else 1
                pairs = [
                    [where.submit(_took_ns, one.func, args, kwargs).result() for where in (plain, flushing)]
                    for _ in range(1 + turns)
                ][1:]  # the first one starts threads and loads kernels
                as_is += min(pair[0] for pair in pairs)
                flushed += min(pair[1] for pair in pairs)
            saved[number] = one.spent_ns * max(0.0, 1 - flushed / as_is)
    return saved


def _took_ns(func, args, kwargs) -> int:
    """Computing it once, on copies where it writes to what it is given."""
    if func._schema.is_mutable:
        args, kwargs = tree_map_only(torch.Tensor, torch.Tensor.clone, (args, kwargs))
    with torch.no_grad():
        began = _clock()
        func(*args, **kwargs)
        return _clock() - began


class SubnormalsWindow(InnermostMode):
    """Opened at one step boundary, closed at another."""

    name = "subnormals"
    microbenchmark = final_microbenchmark = None

    def __init__(self, sites, loop, compiled: bool) -> None:
        self.sites = sites
        self.loop = loop
        self.compiled = compiled

    def obstacle(self) -> str:
        """Why this cannot be done now, or ""."""
        on_device = "on a CUDA device subnormal numbers cost nothing"
        return innermost.obstacle(self.compiled) or (on_device if torch.cuda.is_initialized() else "")

    def open(self) -> None:
        self.enter(Subnormals(self.sites, self.loop))

    def abandon(self) -> None:
        """Leave the mode."""
        self.watch.__exit__(None, None, None)

    def close(self, steps: int) -> dict:
        """Leave the mode; what `steps` steps take longer."""
        self.abandon()
        watch, self.watch = self.watch, None
        return watch.summary(steps)
