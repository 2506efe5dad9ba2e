"""The counters window: what a few steps do, counted and not timed, for comparing one version of a job with another.

Opened only when asked for. Every launch of a program that does the same work counts the same: operators by name,
allocations and their bytes, reads of scalars, conversions, floating-point operations, and the losses.
"""

import ctypes
import os
import sys

import torch

from ..changes import Changes
from .operators import ProfilerWindow, flops

STEPS = 4
"""Steps counted, however long they are: a count per step must not depend on how fast the machine was."""
_SCALAR_READ = "aten::_local_scalar_dense"
_CONVERSION = "aten::_to_copy"
_COPY = "aten::copy_"
_MEMORY = "[memory]"
_ERRORS_ONLY = 2
_ON_CPU = {"missing": "nothing runs on a CUDA device"}
_NOT_COMPILED = {"missing": "the job does not use torch.compile"}


class CountersWindow(ProfilerWindow):
    """Opened only when asked for."""

    name = "counters"
    steps = STEPS

    def __init__(self, profilers) -> None:
        super().__init__(profilers)
        self.roots: list = []
        """What backward passes started from, kept until the profiler is off: reading one is an operator too."""
        self.changes = Changes()
        self.log_level = _log_level()
        self.level_before = 0

    def open(self) -> None:
        # While memory is profiled, the allocator warns on stderr of blocks that are older than the profile.
        quiet = self.log_level is not None
        if quiet:
            self.level_before, self.log_level.value = self.log_level.value, _ERRORS_ONLY
        self._note_roots()
        self.start(profile_memory=quiet)

    def abandon(self) -> None:
        self.changes.take_back()
        super().abandon()
        if self.log_level is not None:
            self.log_level.value = self.level_before

    def close(self, steps: int) -> dict:
        """Counts per step of `steps` steps."""
        self.abandon()
        found = counted(*self.events(), steps)
        if self.log_level is None:
            found["allocations"] = found["allocated_bytes"] = {"missing": "this torch cannot profile memory quietly"}
        roots, self.roots = self.roots, []
        losses = [_loss(root) for root in roots]
        return {"steps": steps, **found, "losses": losses, **compilations()}

    def _note_roots(self) -> None:
        original, roots = torch.autograd._engine_run_backward, self.roots

        def run_backward(*args, **kwargs):
            try:
                first = args[0][0]
                if len(roots) < 2 * STEPS and first.numel() == 1 and not first.is_complex():
                    roots.append(first)
            except Exception:  # an edge of the graph instead of a tensor, say: it has no value
                pass
            return original(*args, **kwargs)

        self.changes.put(torch.autograd, "_engine_run_backward", run_backward)


def _log_level():
    """The level of torch's C++ log, in its memory; None where it cannot be found."""
    try:
        library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so"))
        return ctypes.c_int.in_dll(library, "FLAGS_caffe2_log_level")
    except (OSError, ValueError):
        return None


def _loss(root) -> float:
    return float(root.detach())


def counted(host: list, device: list, steps: int) -> dict:
    """All events, per step. `calls` are operators that no other operator called; `aten_ops` are all of them."""
    calls: "dict[str, int]" = {}
    totals = dict.fromkeys(("aten_ops", "syncs", "conversions", "copies", "flops", "allocations", "allocated_bytes"), 0)
    open_until: "list[int]" = []  # ends of the operators that are open, the outermost first
    thread = None
    for this_thread, start, negative_duration, event in host:
        if this_thread != thread:
            thread = this_thread
            open_until.clear()
        name = event.name()
        if name == _MEMORY:
            size = event.nbytes()
            if size > 0:
                totals["allocations"] += 1
                totals["allocated_bytes"] += size
            continue
        while open_until and open_until[-1] <= start:
            open_until.pop()
        if not name.startswith("aten::"):
            continue
        totals["aten_ops"] += 1
        if not open_until:
            calls[name] = calls.get(name, 0) + 1
        open_until.append(start - negative_duration)
        totals["syncs"] += name == _SCALAR_READ
        totals["conversions"] += name == _CONVERSION
        totals["copies"] += name == _COPY
        totals["flops"] += flops(name, event.shapes(), event.concrete_inputs())
    names = [event.name() for event in device]
    moved = [name for name in names if name.startswith("Mem")]
    kinds = {
        "kernels": len(names) - len(moved),
        "host_to_device": sum(name.startswith("Memcpy HtoD") for name in moved),
        "device_to_host": sum(name.startswith("Memcpy DtoH") for name in moved),
    }
    return {
        **{name: total / steps for name, total in totals.items()},
        "calls": sorted((name, count / steps) for name, count in calls.items()),
        **{kind: count / steps if device else _ON_CPU for kind, count in kinds.items()},
    }


def compilations() -> dict:
    """What torch.compile has done since the job started."""
    if "torch._dynamo.utils" not in sys.modules:
        return {"graphs": _NOT_COMPILED, "graph_breaks": _NOT_COMPILED}
    counters = sys.modules["torch._dynamo.utils"].counters
    return {
        "graphs": int(counters["stats"].get("unique_graphs", 0)),
        "graph_breaks": int(sum(counters["graph_break"].values())),
    }
