"""The call-site window: one step under a dispatch mode that notes which user lines do telling things.

Sees every ATen operator of the step, forward and backward, below autograd. A line is looked up only for the
few operators that matter: scalar reads, type conversions, float64 arithmetic.
"""

import time

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_LOOKUPS = 3000
"""Stack walks in one window; each costs 2 to 5 us."""
_SCALAR_READS = {"aten::_local_scalar_dense"}
_CONVERSIONS = {"aten::_to_copy"}
_ARITHMETIC = {"aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::convolution"}


class _Watch(TorchDispatchMode):
    def __init__(self, sites) -> None:
        super().__init__()
        self.sites = sites
        self.kinds: dict = {}
        self.found: "dict[tuple, list[int]]" = {}
        self.ops = 0
        self.lookups = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Else torch wraps the method below in something that imports Dynamo: a second, for a job without it.
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        self.ops += 1
        kind = self.kinds.get(func)
        if kind is None:
            kind = self.kinds[func] = _kind(func)
        if not kind:
            return func(*args, **kwargs)
        began = time.perf_counter_ns()
        result = func(*args, **kwargs)
        took = time.perf_counter_ns() - began
        try:
            self._note(kind, args, result, took)
        except Exception:  # a tensor subclass without dtype, say: this call is not counted
            pass
        return result

    def _note(self, kind: str, args, result, took: int) -> None:
        detail = ""
        size = 0
        if kind == "convert":
            source = args[0]
            if source.dtype == result.dtype or not (source.dtype.is_floating_point or result.dtype.is_floating_point):
                return
            detail = f"{str(source.dtype)[6:]}->{str(result.dtype)[6:]}"
            size = result.numel() * result.element_size()
        elif kind == "arithmetic":
            if result.dtype != torch.float64:
                return
            kind = "float64"
            size = result.numel()
        if self.lookups >= _LOOKUPS:
            return
        self.lookups += 1
        key = (kind, self.sites.here(2), detail)
        total = self.found.setdefault(key, [0, 0, 0])
        total[0] += 1
        total[1] += took
        total[2] += size


def _kind(func) -> str:
    name = func._schema.name
    if name in _SCALAR_READS:
        return "scalar_read"
    if name in _CONVERSIONS:
        return "convert"
    return "arithmetic" if name in _ARITHMETIC else ""


class SitesWindow:
    """Opened at one step boundary, closed at another."""

    name = "sites"
    pricing = None

    def __init__(self, sites, compiled: bool) -> None:
        self.sites = sites
        self.compiled = compiled
        self.watch = None
        self.inference = False

    def obstacle(self) -> str:
        """Why this cannot be done now, or ""."""
        if self.compiled:
            return "the job uses torch.compile, which leaves code uncompiled while a dispatch mode is active"
        if torch._C._len_torch_dispatch_stack():
            return "the job has a dispatch mode of its own around its steps"
        return ""

    def open(self) -> None:
        self.inference = torch.is_inference_mode_enabled()
        self.watch = _Watch(self.sites)
        self.watch.__enter__()

    def closable(self) -> bool:
        """Whether our mode is the innermost one, so that leaving it leaves no other.

        And inside inference mode only if opened there: leaving inference mode restores the dispatch keys as it
        found them, ours among them.
        """
        length = torch._C._len_torch_dispatch_stack()
        return (
            length > 0
            and torch._C._get_dispatch_stack_at(length - 1) is self.watch
            and torch.is_inference_mode_enabled() == self.inference
        )

    def abandon(self) -> None:
        """Leave the mode."""
        self.watch.__exit__(None, None, None)

    def close(self, steps: int) -> dict:
        """Leave the mode; the calls of `steps` steps by line, microseconds in total."""
        self.abandon()
        found, self.watch, ops = self.watch.found, None, self.watch.ops
        return {
            "steps": steps,
            "ops": ops,
            "calls": [
                {
                    "kind": kind,
                    "site": site,
                    "detail": detail,
                    "count": count,
                    "us": took // 1000,
                    "size": size,
                }
                for (kind, site, detail), (count, took, size) in found.items()
            ],
        }
