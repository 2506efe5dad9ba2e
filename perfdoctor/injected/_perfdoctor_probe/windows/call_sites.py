"""The call-site window: a step or two under a dispatch mode that notes which user lines issue which operators.

Sees every ATen operator of the step, forward and backward, below autograd. Each is counted for the line that
issued it (`issued`); operators that matter (scalar reads, conversions, copies between devices, float64 arithmetic)
are also noted one by one.
"""

import contextlib
import functools
import sys
import time
from _thread import get_ident

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..changes import Changes
from ..hooks.anomaly import SEARCH, Anomaly, AnomalyWatch
from ..hooks.around import switching_off
from ..hooks.doubles import WIDE
from ..rows import milliseconds
from . import asserting, indices, innermost
from .innermost import InnermostMode
from .issued import IssuedByLine

_LOOKUPS = 2000
"""Stack walks for telling operators (2 to 5 us each) until only every 3rd of a kind counts, for the two it stands for
as well; as many again until every 7th, ..."""
_OF_TENSORS = ("torch/_tensor.py", "torch/_tensor_str.py")
"""Files in which `float()`, an f-string or `print` becomes a read: the job's or a library's."""
_SEARCHES = "anomaly"
"""The kind of what autograd's anomaly detection calls."""
_NOT_THE_JOBS = "profiler"
"""The kind of what torch's optimizers call for a profiler that is not there."""
_KINDS = {
    "aten::_local_scalar_dense": "scalar_read",
    **dict.fromkeys(SEARCH, _SEARCHES),
    **dict.fromkeys(("aten::_to_copy", "aten::copy_"), "convert"),
    **dict.fromkeys(("aten::_softmax", "aten::_safe_softmax"), "softmax"),
    "aten::_pack_padded_sequence": "packs",
    **dict.fromkeys(("aten::masked_fill", "aten::masked_fill_"), "causal_mask"),
    **dict.fromkeys(indices.OPERATORS, "indices"),
    **dict.fromkeys(("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::convolution"), "arithmetic"),
    **dict.fromkeys(("aten::mul", "aten::add", "aten::sub", "aten::div", "aten::cat", "aten::where"), "promotes"),
}
_LISTS = (
    (torch, "tensor", "from_list"),
    (torch, "as_tensor", "from_list"),
    (torch.Tensor, "tolist", "to_list"),
)
"""What makes a tensor of a list or a list of a tensor, and the kind that it is noted as."""
_clock = time.perf_counter_ns


class _Watch(TorchDispatchMode):
    def __init__(self, sites, loop, anomaly: Anomaly, doubles) -> None:
        super().__init__()
        self.sites = sites
        self.doubles = doubles
        self.anomaly = AnomalyWatch(anomaly)
        self.thread = get_ident()
        self.issued = IssuedByLine(sites, loop, self.thread)
        self.kinds: dict = {}
        self.found: "dict[tuple, list[int]]" = {}
        """Telling calls and their nanoseconds, by kind, line, detail and whether a library makes them."""
        self.indices = indices.Indices()
        self.causal: "dict[tuple, bool]" = {}
        """Whether masks of a size are."""
        self.ops = 0
        self.lookups = 0
        self.lookup_stride = 1
        self.unlooked: "dict[tuple, list[int]]" = {}
        """Telling calls and their nanoseconds since the last walk for one of the kind."""
        self.left_ns = _clock()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Else torch wraps the method below in something that imports Dynamo: a second, for a job without it.
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        pause = _clock() - self.left_ns
        kwargs = kwargs or {}
        kind = self.kinds.get(func)
        if kind is None:
            kind = self.kinds[func] = _kind(func)
        if kind is _NOT_THE_JOBS:
            return func(*args, **kwargs)
        self.ops += 1
        began = _clock()
        result = func(*args, **kwargs)
        took = _clock() - began
        try:
            self.issued.note(func, took, pause, result)
            if kind:
                self._note(func, kind, args, result, took)
        except Exception:  # a tensor subclass without dtype, say: this call is not counted
            pass
        self.left_ns = _clock()
        return result

    def _note(self, func, kind: str, args, result, took: int) -> None:
        detail = ""
        if kind == "indices":
            self.indices.note(func._schema.name, args)
            return
        if kind in (_SEARCHES, "scalar_read"):
            in_backward = torch._C._current_graph_task_id() >= 0
            if self.anomaly.is_search(func._schema.name, in_backward, took) or kind == _SEARCHES:
                return
        if kind == "convert":
            # copy_ has its target first and its source second.
            source, target = (args[0], result) if result is not args[0] else (args[1], args[0])
            if source.device.type != target.device.type:
                kind = "copy"
                detail = f"{source.device.type}->{target.device.type}"
            else:
                real = source.dtype.is_floating_point or target.dtype.is_floating_point
                if source.dtype == target.dtype or result is args[0] or not real:
                    return
                detail = f"{str(source.dtype)[6:]}->{str(target.dtype)[6:]}"
        elif kind in ("softmax", "causal_mask"):
            if result.dim() < 3:  # of classes, not of attention
                return
            if kind == "causal_mask" and not self._is_causal(args[1]):
                return
            detail = "x".join(map(str, result.shape[-2:]))
        elif kind == "promotes":
            if result.dtype not in WIDE or not _has_narrow(args):
                return
            detail = str(result.dtype)[6:]
            self._look_for_origin(args, took)
        elif kind == "arithmetic":
            if result.dtype == torch.float64:
                kind = "float64"
                self._look_for_origin(args, took)
            elif func is torch.ops.aten.convolution.default and not _library_on(result):
                kind = "library_off"
                detail = "onednn" if result.device.type == "cpu" else "cudnn"
            else:
                return
        else:
            detail = self.issued.part()
        pending = self.unlooked.setdefault((kind, detail), [0, 0])
        pending[0] += 1
        pending[1] += took
        if pending[0] < self.lookup_stride:
            return
        self.lookups += 1
        if not self.lookups % _LOOKUPS:
            self.lookup_stride = 2 * self.lookup_stride + 1
        site, _, via = self.sites.call(2, self.thread)
        by_library = kind == "scalar_read" and via is not None
        if by_library and via[0].endswith(_OF_TENSORS):
            by_library = self.sites.is_in_library(sys._getframe(1), _OF_TENSORS)
        key = (kind, site, detail, by_library)
        self.count(key, *reversed(pending))
        pending[:] = (0, 0)

    def _look_for_origin(self, args, took: int) -> None:
        """Of what an operator in float64 reads: the line that made the largest tensor of NumPy's numbers."""
        if self.doubles is None:
            return
        origins = ((one.numel(), self.doubles.origin(one)) for one in args if isinstance(one, torch.Tensor))
        known = [(size, site) for size, site in origins if site >= 0]
        if known:
            self.count(("from_numpy", max(known)[1], "", False), took)

    def count(self, key: tuple, took: int = 0, calls: int = 1) -> None:
        """Telling calls more, which took so many nanoseconds."""
        total = self.found.setdefault(key, [0, 0])
        total[0] += calls
        total[1] += took

    def _is_causal(self, mask) -> bool:
        """Whether it hides from each position those that follow, and no others; of one size only the first is read."""
        size = tuple(mask.shape[-2:])
        if len(size) < 2 or size[0] != size[1] or size[0] < 2 or mask.device.type != "cpu":
            return False
        if size not in self.causal:
            first = mask.reshape(-1, *size)[0]
            self.causal[size] = bool(torch.equal(first, torch.ones(size, dtype=torch.bool).triu(1)))
        return self.causal[size]

    def note_flags(self, library: str) -> None:
        """A `flags()` by which this library is off was made."""
        self.count(("library_flags", self.sites.here(), library, False))

    def note_list(self, kind: str, data, took: int) -> None:
        """A tensor was made of `data`, or `data` of one, in so many nanoseconds."""
        if type(data) in (list, tuple) and get_ident() == self.thread:
            self.count((kind, self.sites.here(), self.issued.part(), False), took)


def _kind(func) -> str:
    name = func._schema.name
    return _NOT_THE_JOBS if name.startswith("profiler::") else _KINDS.get(name, "")


def _has_narrow(args) -> bool:
    """Whether there is a tensor of fewer bits among them: numbers, and tensors of one number, change no type."""
    several = (one for arg in args for one in (arg if isinstance(arg, (list, tuple)) else (arg,)))
    return any(
        isinstance(one, torch.Tensor)
        and one.dim()
        and one.dtype not in WIDE
        and (one.is_floating_point() or one.is_complex())
        for one in several
    )


def _library_on(result) -> bool:
    """Whether the library that does convolutions there is switched on: inside a `flags()` it may not be."""
    if result.device.type == "cpu":
        return bool(torch._C._get_mkldnn_enabled())
    return result.device.type != "cuda" or bool(torch._C._get_cudnn_enabled())


def _timing_lists(watch: _Watch, original, kind: str):
    """A stand-in for a function that makes a tensor of a list, or a list of a tensor: notes who calls it, and times it.
    What it does below the dispatcher is a pause between operators there."""

    @functools.wraps(original)
    def convert(*args, **kwargs):
        began = _clock()
        result = original(*args, **kwargs)
        took = _clock() - began
        with contextlib.suppress(Exception):  # whatever goes wrong here is not the job's
            watch.note_list(kind, result if kind == "to_list" else args[0] if args else kwargs["data"], took)
        return result

    return convert


class SitesWindow(InnermostMode):
    """Opened at one step boundary, closed at another."""

    name = "sites"
    microbenchmark = final_microbenchmark = None

    def __init__(self, sites, loop, anomaly: Anomaly, compiled: bool, doubles=None) -> None:
        self.sites = sites
        self.loop = loop
        self.anomaly = anomaly
        self.compiled = compiled
        self.doubles = doubles
        self.changes = Changes()

    def obstacle(self) -> str:
        """Why this cannot be done now, or ""."""
        return innermost.obstacle(self.compiled)

    def open(self) -> None:
        watch = _Watch(self.sites, self.loop, self.anomaly, self.doubles)
        for library, module in (("onednn", torch.backends.mkldnn), ("cudnn", torch.backends.cudnn)):
            self.changes.put(module, "flags", switching_off(module.flags, functools.partial(watch.note_flags, library)))
        for owner, name, kind in _LISTS:
            self.changes.put(owner, name, _timing_lists(watch, getattr(owner, name), kind))
        watch.anomaly.open()
        self.enter(watch)

    def abandon(self) -> None:
        """Leave the mode."""
        self.changes.take_back()
        self.watch.anomaly.close()
        self.watch.__exit__(None, None, None)

    def close(self, steps: int) -> dict:
        """Leave the mode; the calls of `steps` steps by line."""
        self.abandon()
        watch, self.watch = self.watch, None
        found = [*watch.found.items(), *watch.anomaly.found()]
        purposes = self._purposes({site for kind, site, *_ in watch.found if kind == "scalar_read"})
        return {
            "steps": steps,
            "ops": watch.ops,
            "lines": watch.issued.summary(steps),
            "calls": [
                {
                    "kind": kind,
                    "site": site,
                    "calls_per_step": count / steps,
                    "ms_per_step": milliseconds(took, steps),
                    "detail": detail,
                    "by_library": by_library,
                    "purpose": purposes.get(site, "") if kind == "scalar_read" and not by_library else "",
                }
                for (kind, site, detail, by_library), (count, took) in found
                if site >= 0
            ],
            "indices": watch.indices.summary(),
        }

    def _purposes(self, reading: "set[int]") -> "dict[int, str]":
        """What the lines that read do so for, by their number."""
        return {site: asserting.purpose(*self.sites.position(site)) for site in reading if site >= 0}
