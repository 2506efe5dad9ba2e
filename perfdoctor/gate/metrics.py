"""From the evidence of one launch to its metrics. Pure; what a recording lacks is Missing with a reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..evidence.model import Evidence, Missing
from .model import Assume, Metric, Unit

T = TypeVar("T")

Metrics = dict[str, Metric]

STEP_TIME = "step_time_ms"
H2D_SHARE = "h2d_share"
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


COLLECTIONS = tuple(f"gc_collections_gen{generation}" for generation in range(3))

NAMES = (
    *(STEP_TIME, "data_wait_share", "gc_share", H2D_SHARE),
    *(name for name, _, _ in _COUNTERS),
    *("loader_processes", "peak_rss_bytes", "torch_peak_allocated_bytes", "torch_peak_reserved_bytes"),
    *COLLECTIONS,
    *("samples_per_s", "first_step_s", "cpu_ms"),
)
"""All metrics but those of single operators, `op:NAME`; a test holds them to what `metrics` gives."""
COUNTED = tuple(name for name, _, _ in _COUNTERS)
"""Those of the counters window."""


def metrics(evidence: Evidence) -> Metrics:
    """All that can be said about one launch, by name, in the order of a report."""
    found = [
        *_timed(evidence),
        *_counted(evidence),
        *_memory(evidence),
        *_collections(evidence),
        *_informative(evidence),
    ]
    return {metric.name: metric for metric in found}


def _of(whole: T | Missing, take: Callable[[T], float | Missing]) -> float | Missing:
    """A number of a part of the evidence, or why that part is missing."""
    return whole if isinstance(whole, Missing) else take(whole)


def _timed(evidence: Evidence) -> list[Metric]:
    step = evidence.step
    return [
        Metric(STEP_TIME, "ms", Assume.TIMED, _of(step, lambda s: s.step_ms), "steady step"),
        Metric(
            "data_wait_share",
            "share",
            Assume.SHARE,
            _of(step, lambda s: s.parts.input_wait / s.step_ms if s.step_ms else 0.0),
            "wait for data, share of the step",
        ),
        Metric(
            "gc_share",
            "share",
            Assume.SHARE,
            _of(step, lambda s: s.parts.gc / s.step_ms if s.step_ms else 0.0),
            "garbage collection, share of the step",
        ),
        Metric(
            H2D_SHARE,
            "share",
            Assume.SHARE,
            _h2d_share(evidence),
            "copies to the device, share of the step (kernels may run meanwhile)",
        ),
    ]


def _h2d_share(evidence: Evidence) -> float | Missing:
    """By the profiler, in one launch: no pairs of launches to judge it by, while the copies are counted exactly."""
    step, ops = evidence.step, evidence.ops
    if isinstance(step, Missing):
        return step
    if isinstance(ops, Missing):
        return ops
    if not evidence.on_cuda:
        return Missing("nothing runs on a CUDA device")
    return ops.device_copies_ms / step.step_ms if step.step_ms else 0.0


def _counted(evidence: Evidence) -> list[Metric]:
    counters = evidence.counters

    def taking(name: str) -> Callable[[object], float | Missing]:
        def take(whole: object) -> float | Missing:
            value: float | Missing = getattr(whole, name)
            return value

        return take

    found = [Metric(name, unit, Assume.EXACT, _of(counters, taking(name)), label) for name, unit, label in _COUNTERS]
    if not isinstance(counters, Missing):
        found += [
            Metric(f"op:{name}", "count", Assume.EXACT, calls, f"calls of {name} per step")
            for name, calls in counters.calls
        ]
    loaders = evidence.loaders
    workers = _of(loaders, lambda all_: float(sum(loader.num_workers for loader in all_)))
    return [*found, Metric("loader_processes", "count", Assume.EXACT, workers, "data-loader workers")]


def _memory(evidence: Evidence) -> list[Metric]:
    cuda = evidence.cuda_memory
    return [
        Metric(
            "peak_rss_bytes", "bytes", Assume.TIGHT, _of(evidence.memory, lambda m: m.peak_rss_bytes), "peak memory"
        ),
        Metric(
            "torch_peak_allocated_bytes",
            "bytes",
            Assume.TIGHT,
            _of(cuda, lambda c: c.peak_allocated_bytes),
            "peak of torch's allocator on the device",
        ),
        Metric(
            "torch_peak_reserved_bytes",
            "bytes",
            Assume.TIGHT,
            _of(cuda, lambda c: c.peak_reserved_bytes),
            "peak that torch reserved on the device",
        ),
    ]


def _collections(evidence: Evidence) -> list[Metric]:
    """Per 100 steps. Which of them fall into the steady steps of a launch is partly chance: not exact."""

    def of(generation: int) -> float | Missing:
        return _of(evidence.gc, lambda gc: 100 * gc.per_step[generation])

    return [collections_metric(generation, of(generation)) for generation in range(3)]


def collections_metric(generation: int, value: float | Missing) -> Metric:
    """Garbage collections of one generation per 100 steps."""
    label = f"garbage collections of generation {generation} per 100 steps"
    return Metric(COLLECTIONS[generation], "count", Assume.TIGHT, value, label)


def _informative(evidence: Evidence) -> list[Metric]:
    step = evidence.step

    def rate() -> float | Missing:
        if isinstance(step, Missing):
            return step
        return _of(step.samples, lambda samples: 1000 * samples / step.step_ms if step.step_ms else 0.0)

    return [
        Metric("samples_per_s", "samples/s", Assume.INFO, rate(), "samples per second"),
        Metric(
            "first_step_s", "s", Assume.INFO, _of(step, lambda s: s.first_step_s), "from the start to the first step"
        ),
        Metric("cpu_ms", "ms", Assume.INFO, _of(step, lambda s: s.cpu_ms), "CPU time of the training thread per step"),
    ]
