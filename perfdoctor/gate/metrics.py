"""From the evidence of one launch to its metrics. Pure; what a recording lacks is Missing with a reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..evidence.model import Evidence, Missing, Step
from .model import Assume, Metric, Unit

T = TypeVar("T")

Metrics = dict[str, Metric]
Value = float | Missing
Take = Callable[[Evidence], Value]

STEP_TIME = "step_time_ms"
H2D_SHARE = "h2d_share"
COLLECTIONS = tuple(f"gc_collections_gen{generation}" for generation in range(3))


def _of(whole: T | Missing, take: Callable[[T], Value]) -> Value:
    """A number of a part of the evidence, or why that part is missing."""
    return whole if isinstance(whole, Missing) else take(whole)


def _per_ms(value: float, step: Step) -> float:
    """A number of the mean step, over its length in ms."""
    return value / step.step_ms if step.step_ms else 0.0


def _part(name: str) -> Take:
    """A part of the step, as a share of it."""
    return lambda e: _of(e.step, lambda step: _per_ms(float(getattr(step.parts, name)), step))


def _h2d_share(evidence: Evidence) -> Value:
    """By the profiler, in one launch: no pairs of launches to judge it by, while the copies are counted exactly."""
    if not isinstance(evidence.step, Missing) and not isinstance(evidence.ops, Missing) and not evidence.on_cuda:
        return Missing("nothing runs on a CUDA device")
    return _of(evidence.step, lambda step: _of(evidence.ops, lambda ops: _per_ms(ops.device_copies_ms, step)))


def _samples_per_s(evidence: Evidence) -> Value:
    return _of(evidence.step, lambda step: _of(step.samples, lambda samples: _per_ms(1000 * samples, step)))


def _number(part: str, name: str) -> Take:
    """A number that a part of the evidence holds."""

    def take(whole: object) -> Value:
        value: Value = getattr(whole, name)
        return value

    return lambda evidence: _of(getattr(evidence, part), take)


def _workers(evidence: Evidence) -> Value:
    return _of(evidence.loaders, lambda loaders: float(sum(loader.num_workers for loader in loaders)))


def _collected(generation: int) -> Take:
    """Per 100 steps. Which of them fall into the steady steps of a launch is partly chance: not exact."""
    return lambda evidence: _of(evidence.gc, lambda gc: 100 * gc.per_step[generation])


_COUNTERS: tuple[tuple[str, Unit, str], ...] = (
    ("aten_ops", "count", "ATen operators per step"),
    ("syncs", "count", "scalar reads (syncs) per step"),
    ("conversions", "count", "conversions of type or device per step"),
    ("copies", "count", "tensor copies per step"),
    ("flops", "flops", "floating-point operations per step"),
    ("allocations", "count", "allocations per step"),
    ("allocated_bytes", "bytes", "bytes allocated per step"),
    ("kernels", "count", "kernels per step"),
    ("host_to_device", "count", "copies to the device per step"),
    ("device_to_host", "count", "copies from the device per step"),
    ("graphs", "count", "graphs compiled by torch.compile"),
    ("graph_breaks", "count", "graph breaks of torch.compile"),
)
COUNTED = tuple(name for name, _, _ in _COUNTERS)
"""Those of the counters window."""

_TORCH_PEAKS = (
    ("allocated", "peak of torch's allocator on the device"),
    ("reserved", "peak that torch reserved on the device"),
)
_COPYING = "copies to the device, share of the step (kernels may run meanwhile)"

_TABLE: tuple[tuple[str, Unit, Assume, str, Take], ...] = (
    (STEP_TIME, "ms", Assume.TIMED, "steady step", _number("step", "step_ms")),
    ("data_wait_share", "share", Assume.SHARE, "wait for data, share of the step", _part("input_wait")),
    ("gc_share", "share", Assume.SHARE, "garbage collection, share of the step", _part("gc")),
    (H2D_SHARE, "share", Assume.SHARE, _COPYING, _h2d_share),
    *((name, unit, Assume.EXACT, label, _number("counters", name)) for name, unit, label in _COUNTERS),
    ("loader_processes", "count", Assume.EXACT, "data-loader workers", _workers),
    ("peak_rss_bytes", "bytes", Assume.TIGHT, "peak memory", _number("memory", "peak_rss_bytes")),
    *(
        (f"torch_peak_{kind}_bytes", "bytes", Assume.TIGHT, label, _number("cuda_memory", f"peak_{kind}_bytes"))
        for kind, label in _TORCH_PEAKS
    ),
    *(
        (name, "count", Assume.TIGHT, f"garbage collections of generation {n} per 100 steps", _collected(n))
        for n, name in enumerate(COLLECTIONS)
    ),
    ("samples_per_s", "samples/s", Assume.INFO, "samples per second", _samples_per_s),
    ("first_step_s", "s", Assume.INFO, "from the start to the first step", _number("step", "first_step_s")),
    ("cpu_ms", "ms", Assume.INFO, "CPU time of the training thread per step", _number("step", "cpu_ms")),
)
NAMES = tuple(name for name, *_ in _TABLE)
"""All metrics but those of single operators, `op:NAME`."""


_NEVER_TRACED = ("gc_share", "cpu_ms")
"""What the step of a trace has no number for."""


def metrics(evidence: Evidence) -> Metrics:
    """All that can be said about one launch, by name, in the order of a report."""
    found = [
        Metric(name, unit, assume, take(evidence), label)
        for name, unit, assume, label, take in _TABLE
        if not (evidence.job.traced and name in _NEVER_TRACED)
    ]
    if not isinstance(evidence.counters, Missing):
        last = NAMES.index(COUNTED[-1]) + 1
        found[last:last] = [
            Metric(f"op:{name}", "count", Assume.EXACT, calls, f"calls of {name} per step")
            for name, calls in evidence.counters.calls
        ]
    return {metric.name: metric for metric in found}


def collections_metric(generation: int, value: Value) -> Metric:
    """Garbage collections of one generation per 100 steps."""
    name, unit, assume, label, _ = _TABLE[NAMES.index(COLLECTIONS[generation])]
    return Metric(name, unit, assume, value, label)
