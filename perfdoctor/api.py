"""All that a check author imports: evidence, outcomes, and the few judgements that every check shares.

    from perfdoctor.api import Check, Evidence, Outcome, clear, found, ...

A check is a module with a docstring of fixed sections and one attribute, `CHECK`.
"""

from __future__ import annotations

from .diagnosis.findings import (
    Check,
    Confidence,
    Finding,
    Fix,
    Location,
    Measurement,
    Outcome,
    Part,
    Savings,
    Severity,
    cannot_tell,
    clear,
    found,
    not_applicable,
)
from .evidence.model import (
    Attention,
    AttentionPrice,
    Backend,
    BatchPrice,
    BatchPrices,
    CallSite,
    CapPrice,
    CapPrices,
    CollectSite,
    Concurrency,
    Convolution,
    Cpu,
    CudaMemory,
    Cudnn,
    DeviceTimeline,
    DtypePrice,
    EvalWithGrad,
    Evidence,
    Fetch,
    GarbageCollection,
    Host,
    HostMemory,
    Job,
    Layer,
    LayerProfile,
    LibraryPrice,
    LibraryUse,
    Line,
    Loader,
    Machine,
    Missing,
    Neighbour,
    Op,
    OpProfile,
    Precision,
    Recurrent,
    RequestPrice,
    Site,
    Step,
    ThreadPrice,
    Threads,
    WorkerThreads,
)

__all__ = [
    "Attention",
    "AttentionPrice",
    "Backend",
    "BatchPrice",
    "BatchPrices",
    "CallSite",
    "CapPrice",
    "CapPrices",
    "Check",
    "CollectSite",
    "Concurrency",
    "Confidence",
    "Convolution",
    "Cpu",
    "CudaMemory",
    "Cudnn",
    "DeviceTimeline",
    "DtypePrice",
    "EvalWithGrad",
    "Evidence",
    "Fetch",
    "Finding",
    "Fix",
    "GarbageCollection",
    "Host",
    "HostMemory",
    "Job",
    "Layer",
    "LayerProfile",
    "LibraryPrice",
    "LibraryUse",
    "Line",
    "Loader",
    "Location",
    "Machine",
    "Measurement",
    "Missing",
    "Neighbour",
    "Op",
    "OpProfile",
    "Outcome",
    "Part",
    "Precision",
    "Recurrent",
    "RequestPrice",
    "Savings",
    "Severity",
    "Site",
    "Step",
    "ThreadPrice",
    "Threads",
    "WorkerThreads",
    "cannot_tell",
    "clear",
    "found",
    "in_step",
    "location",
    "milliseconds",
    "not_applicable",
    "savings",
    "severity",
    "share",
]


def severity(cost_share: float, warning: float, error: float) -> Severity:
    """By the share of the step that the finding costs."""
    if cost_share >= error:
        return Severity.ERROR
    return Severity.WARNING if cost_share >= warning else Severity.NOTE


def location(site: Site | Missing | None) -> Location | None:
    """Where a finding points, if the evidence knows."""
    if site is None or isinstance(site, Missing) or not site.file:
        return None
    return Location(site.file, site.line, site.function)


def savings(
    step: Step,
    part: Part,
    *,
    ceiling: float,
    low: float,
    high: float,
    method: str,
    lanes: int = 0,
    general: bool = False,
) -> Savings:
    """Per-step savings in ms, put in order: no bound below zero or above the ceiling, no ceiling above the step."""
    top = min(max(0.0, ceiling), step.step_ms)
    upper = min(max(0.0, high), top)
    return Savings(
        ceiling_ms=top,
        low_ms=min(max(0.0, low), upper),
        high_ms=upper,
        share=top / step.step_ms if step.step_ms > 0 else 0.0,
        method=method,
        part=part,
        lanes=lanes,
        general=general,
    )


def in_step(step: Step, ops: OpProfile, profiled_ms: float) -> float:
    """Profiled time as time of an ordinary step: the profiler makes every operator a little slower."""
    rest = step.step_ms - step.parts.input_wait - step.parts.gc
    return profiled_ms * min(1.0, rest / ops.self_ms_per_step) if ops.self_ms_per_step > 0 else 0.0


def milliseconds(name: str, value: float, label: str = "") -> Measurement:
    """A duration per step, or of one event as the label says."""
    return Measurement(name, value, "ms", label)


def share(name: str, value: float, label: str = "") -> Measurement:
    """A fraction of 1."""
    return Measurement(name, value, "share", label)
