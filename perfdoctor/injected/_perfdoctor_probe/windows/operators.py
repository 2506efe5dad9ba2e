"""The operator window: a step or two under torch.profiler, summarised in place by operator, type and shape."""

import _tracemalloc
import ctypes
import os
from _thread import get_ident
from math import prod
from operator import itemgetter

import torch

from .. import procfs, records, settings
from ..hooks.profilers import Profilers
from ..microbenchmarks import intra_op, onednn, replay
from ..microbenchmarks.final import FinalMicrobenchmark
from ..microbenchmarks.update import UpdateMicrobenchmark
from ..rows import COMPLEX, FLOATING, milliseconds, operator, shown
from . import device_work, gaps, layers, library_use

_KEPT = 80
"""Operators kept, the largest by total time; the totals cover all."""
_SILENT = 99
_LEVEL_VARIABLE = "KINETO_LOG_LEVEL"
_DTYPES = {**FLOATING, **COMPLEX}
_CONVERSIONS = ("aten::to", "aten::_to_copy")
"""Of a single number these say nothing about the job's types: Python's numbers are float64, and an optimizer that loops
hands each of its tensors a few."""
_COPIES = (*_CONVERSIONS, "aten::copy_")
"""What they compute in is the first tensor's type; of all others the widest one's."""
_WIDE = ("float64", "complex128")


class ProfilerWindow:
    """One that looks through torch's profiler: opened at one step boundary, closed at another."""

    microbenchmark = None
    """Rounds of the largest operators, to be taken after the window."""
    final_microbenchmark = None
    """Timings to be taken after the job's last step."""
    unused_gradients = None
    """Of which another window is to see whether anybody reads them."""
    asks: "tuple[str, ...]" = ()
    """Windows that are to follow this one."""

    def __init__(self, profilers: Profilers) -> None:
        self.profilers = profilers
        self.profile = None
        self.on_device = False

    def obstacle(self) -> str:
        """Why this cannot be done now, or "". There can be one profiler only, and the job's own comes first."""
        return "the job runs a profiler of its own" if self.profilers.job_has_one() else ""

    def start(self, **options) -> None:
        """The profiler, with shapes and these options."""
        from torch.autograd.profiler import profile

        self.on_device = torch.cuda.is_initialized()
        self.profile = profile(use_device="cuda" if self.on_device else None, record_shapes=True, **options)
        self.profilers.start_ours(self.profile, QuietKineto())

    def abandon(self) -> None:
        """Stop profiling."""
        with QuietKineto():
            self.profile.__exit__(None, None, None)

    def closable(self) -> bool:
        """A profiler may end anywhere on the thread that started it."""
        return True

    def is_gone(self) -> bool:
        """Never: the profiler is the process's."""
        return False

    def events(self) -> "tuple[list, list]":
        """Those of the host and of the device; they can be had once."""
        profile, self.profile = self.profile, None
        return divided(profile.kineto_results.events(), self.on_device)


class OpsWindow(ProfilerWindow):
    """Operators, and the layers around them."""

    name = "ops"

    def __init__(
        self, profilers: Profilers, compiled: bool, onednn: "bool | None", optimizer, sites=None, trace=None
    ) -> None:
        """`optimizer`: the job's first; None where it has none, or that is gone. `trace`: the `KeptTrace`, where one is
        asked for."""
        super().__init__(profilers)
        self.sites = sites
        self.trace = trace
        self.compiled = compiled
        self.optimizer = optimizer
        self.onednn = onednn
        """Whether oneDNN was on in the forward pass."""
        self.layers = None
        self.without_layers = ""
        self.delays: "tuple[int, int] | None" = None

    def obstacle(self) -> str:
        if self.profilers.home != get_ident():
            return "training runs on another thread than the one that imported torch, and the profiler would complain"
        return super().obstacle()

    def open(self) -> None:
        self.start()
        try:
            self.without_layers = layers.obstacle(self.compiled)
            if not self.without_layers:
                self.layers = layers.Layers(self.sites, self.optimizer)
                self.layers.open()
        except Exception as error:  # a torch without these hooks: operators can still be seen
            self.forget_layers(f"{type(error).__name__}: {error}"[:300])
        if self.trace is not None:
            self.trace.open()
        self.delays = procfs.thread_delays()

    def close(self, steps: int) -> dict:
        """Stop profiling; what was seen in `steps` steps."""
        stray_ms = gaps.stray_ms(self.delays, procfs.thread_delays(), steps)
        self.abandon()
        kept = self.trace.close(self.profile, self.layers, QuietKineto()) if self.trace is not None else None
        host, device = self.events()
        profile, arguments = summarise(host, device, steps)
        profile["stray_ms"] = stray_ms
        if self.sites is not None and self.optimizer is not None:
            profile["optimizer_at"] = self.sites.made_at(self.optimizer)
        seen, self.layers = self.layers, None
        if seen is not None:
            profile["pauses_ms"] = max(0.0, profile["pauses_ms"] - milliseconds(seen.own_ns, steps))
            found = seen.summary(host, device, flops, steps, stray_ms)
            self.unused_gradients = seen.watched
        else:
            found = {"missing": f"layers were not told apart: {self.without_layers}"}
        on_cpu = not self.on_device and (seen is None or seen.on_cpu())
        library, *again = _libraries(host, device, seen, on_cpu, steps)
        record = {"profile": profile, "layers": found, "library_use": library}
        if kept is not None:
            record["trace"] = kept
        if any(name in os.environ for name in records.VECTOR_EXTENSION_VARIABLES):
            record["replays"] = onednn.replays(profile["ops"], arguments)
        watch, traced = self.unused_gradients is not None, _tracemalloc.is_tracing()
        self.asks = ("gradients",) * watch + ("tracing",) * traced + ("traced_calls",) * bool(settings.tracer())
        if not self.on_device:
            self._plan_timings(profile["ops"], arguments, library, again, seen)
        return record

    def _plan_timings(self, ops: list, arguments: list, library: dict, again: list, seen) -> None:
        if replay.alone():
            self.microbenchmark = intra_op.ThreadMicrobenchmark(ops, arguments)
        optimizer, self.optimizer = self.optimizer, None
        weights = settings.parameter_shapes(optimizer) if optimizer is not None else set()
        weights |= seen.weights() if seen else set()
        final = self.final_microbenchmark = FinalMicrobenchmark(ops, arguments, library, weights, self.onednn)
        final.recurrent, final.attention = again
        if seen is not None:
            final.unused = seen.unused
            final.passes = seen.passes
            final.in_parts, final.repeated_rows = seen.in_parts, seen.repeated_rows
            final.siblings, final.experts, final.in_turn = seen.siblings, seen.experts, seen.in_turn
            operators_ms = sum(op["self_ms_per_step"] for op in ops)
            for _, passes in ((), final.passes), *seen.in_parts, *seen.repeated_rows, *seen.siblings:
                passes.keep(operators_ms)
            for _, (_, passes) in seen.in_turn:
                passes.keep(operators_ms, batched=False)
        # `torch.compile` may have been given the update.
        if optimizer is not None and not self.compiled:
            final.update = UpdateMicrobenchmark(optimizer)

    def abandon(self) -> None:
        self.drop_layers()
        if self.trace is not None:
            self.trace.drop()
        super().abandon()

    def drop_layers(self) -> None:
        """Take the hooks off the modules."""
        if self.layers is not None:
            self.layers.close()

    def forget_layers(self, why: str) -> None:
        """The same, for good: what they saw does not count."""
        self.drop_layers()
        self.layers, self.without_layers = None, why


def _libraries(host: list, device: list, seen, on_cpu: bool, steps: int) -> "tuple[dict, list, list]":
    """Which library did what; a profile that this cannot read has no other use for it either."""
    try:
        uses = library_use.Uses()
        uses.read(host, device)
        return uses.summary(seen.titles() if seen else {}, on_cpu, steps, device_work.layout_ns(device))
    except Exception as error:
        return {"missing": f"the profile could not be read: {type(error).__name__}: {error}"[:300]}, [], []


class QuietKineto:
    """Kineto logs to stderr at each start and stop of a profiler, unless its log level says not to.

    The level is set in its memory and put back. Its environment variable is read only once: profilers of the job
    that come after ours would stay silent. That variable is used where the level cannot be found.
    """

    def __init__(self) -> None:
        self.level = None
        try:
            library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
            self.level = ctypes.c_int.in_dll(library, "_ZN9libkineto6Logger14severityLevel_E")
        except (OSError, ValueError):
            pass

    def __enter__(self) -> None:
        if self.level is not None:
            self.before = self.level.value
            self.level.value = _SILENT
        else:
            self.before = os.environ.get(_LEVEL_VARIABLE)
            os.environ[_LEVEL_VARIABLE] = str(_SILENT)

    def __exit__(self, *_) -> None:
        if self.level is not None:
            self.level.value = self.before
        elif self.before is None:
            del os.environ[_LEVEL_VARIABLE]
        else:
            os.environ[_LEVEL_VARIABLE] = self.before


def divided(events, on_device: bool = True) -> "tuple[list, list]":
    """Kineto events of the host, as (thread, start, -duration, event) in this order, and those of the device.

    Each question to an event costs about as much as the rest of the loop, so none is asked twice; where it ran
    is asked only if that may have been a device.
    """
    host, device = [], []
    for event in events:
        if on_device and str(event.device_type()) != "DeviceType.CPU":
            if device_work.is_work(event):
                device.append(event)
            continue
        start, duration = event.start_ns(), event.duration_ns()
        host.append((event.start_thread_id(), start, -duration, event))
    host.sort(key=itemgetter(0, 1, 2))
    return host, device


def _type(name: str, kinds, shapes) -> str:
    """The one that an operator computes in, "" where that is none of floating-point numbers: a tensor of wider numbers
    makes those of all others wide, unless it is a single number."""
    types = [(_DTYPES[kind], shape) for kind, shape in zip(kinds, shapes) if kind in _DTYPES]
    if not types:
        return ""
    first, shape = types[0]
    if name in _COPIES:
        return "" if first == "float64" and name in _CONVERSIONS and not shape else first
    return next((one for one, shape in types if shape and one in _WIDE), first)


def summarise(host: list, device: list, steps: int) -> "tuple[dict, list]":
    """Operators with self and total time per step; and of each the full name, shapes, types and constants, for calling
    it again. Events of one thread nest by time."""
    totals: "dict[tuple, list]" = {}
    by_dtype: "dict[str, int]" = {}
    count = 0
    spans: "dict[int, list]" = {}
    stack: "list[list]" = []  # [end, self time, duration, event]
    thread = None

    def finish(entry) -> None:
        nonlocal count
        end, own, duration, event = entry
        name = event.name()
        if "::" not in name or name.startswith("autograd::"):
            return
        if name.startswith("aten::"):
            count += 1
            spans.setdefault(thread, []).append((end - duration, end))
        shapes = event.shapes()
        dtype = _type(name, event.dtypes(), shapes)
        by_dtype[dtype] = by_dtype.get(dtype, 0) + own
        key = (name, dtype, repr(shapes))
        total = totals.get(key)
        if total is None:
            totals[key] = [1, own, duration, event]
        else:
            total[0] += 1
            total[1] += own
            total[2] += duration

    for this_thread, start, negative_duration, event in host:
        if this_thread != thread:
            while stack:
                finish(stack.pop())
            thread = this_thread
        while stack and stack[-1][0] <= start:
            finish(stack.pop())
        duration = -negative_duration
        if stack:
            stack[-1][1] -= duration
        stack.append([start + duration, duration, duration, event])
    while stack:
        finish(stack.pop())

    ordered = sorted(totals.items(), key=lambda item: -item[1][2])[:_KEPT]
    ops, arguments = [], []
    for (name, dtype, _), (calls, own, total, event) in ordered:
        shapes, concrete = event.shapes(), event.concrete_inputs()
        ops.append(
            {
                "name": operator(name),
                "dtype": dtype,
                "shapes": shown(shapes),
                "calls_per_step": calls / steps,
                "self_ms_per_step": milliseconds(own, steps),
                "total_ms_per_step": milliseconds(total, steps),
                "flops_per_step": flops(name, shapes, concrete) * calls / steps,
            }
        )
        arguments.append((name, shapes, event.dtypes(), concrete))
    profile = {
        "steps": steps,
        "ops": ops,
        "ops_per_step": count / steps,
        "self_ms_per_step": milliseconds(sum(by_dtype.values()), steps),
        "self_ms_by_dtype": [(dtype, milliseconds(own, steps)) for dtype, own in sorted(by_dtype.items())],
        "pauses_ms": milliseconds(gaps.long_ns(spans), steps),
        **(device_work.summary(device, steps) if device else {}),
    }
    return profile, arguments


def flops(name: str, shapes: list, concrete: list) -> int:
    """Floating-point operations of one call; a multiply-add is two. 0 for what is bound by memory.

    Only the innermost operators that do the work are counted, so that nothing is counted twice:
    `aten::linear` is its `aten::addmm`. The LSTM formula is 2 T B (4H I + 4H H) per layer and direction.
    """
    try:
        if name in ("aten::mm", "aten::bmm"):
            return 2 * prod(shapes[0]) * shapes[1][-1]
        if name in ("aten::addmm", "aten::baddbmm", "aten::_addmm_activation"):
            return 2 * prod(shapes[1]) * shapes[2][-1]
        if name == "aten::convolution":
            source, weight = shapes[0], shapes[1]
            if concrete[6]:  # transposed: every input element meets the whole kernel
                return 2 * prod(source) * prod(weight[1:])
            stride, padding, dilation = concrete[3], concrete[4], concrete[5]
            out = 1
            for i, size in enumerate(source[2:]):
                step, pad, spread = (v[i] if len(v) > 1 else v[0] for v in (stride, padding, dilation))
                out *= (size + 2 * pad - spread * (weight[2 + i] - 1) - 1) // step + 1
            return 2 * source[0] * out * prod(weight)
        if name == "aten::convolution_backward":
            wanted = sum(bool(x) for x in concrete[10][:2])
            if concrete[7]:
                return 2 * prod(shapes[1]) * prod(shapes[2][1:]) * wanted
            return 2 * prod(shapes[0]) * prod(shapes[2][1:]) * wanted
        if name in ("aten::mkldnn_rnn_layer", "aten::mkldnn_rnn_layer_backward"):
            steps_batch = prod(shapes[0][:2])
            return 2 * steps_batch * (prod(shapes[1]) + prod(shapes[2])) * (2 if "back" in name else 1)
        # The "math" variant is made of operators that are counted by themselves.
        if name.startswith("aten::_scaled_dot_product") and "_math" not in name and len(shapes[0]) == 4:
            backward = "backward" in name
            query, key = shapes[1 if backward else 0], shapes[2 if backward else 1]
            return (10 if backward else 4) * prod(query) * key[2]
    except (IndexError, TypeError):
        pass
    return 0
