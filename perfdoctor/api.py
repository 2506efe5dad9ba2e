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
from .evidence.causes import (
    HANDOVER_MS,
    REBUILT,
    SIGNS,
    Bursts,
    Overlap,
    Signs,
    ThreadGain,
    are_bound,
    bursts,
    cap_cost,
    compute,
    in_step,
    input_wait,
    lack_of_cpu,
    overlap,
    restart,
    thread_gain,
    type_cost,
    with_cpus,
)
from .evidence.model import (
    MAKING,
    WITHOUT_CPU,
    Attention,
    AttentionPrice,
    Backend,
    BatchPrice,
    BatchPrices,
    CallSite,
    CapPrice,
    CapPrices,
    Cause,
    CodeLine,
    CollectSite,
    Compute,
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
    IndexUse,
    InputWait,
    Job,
    Lack,
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
    UpdatePrice,
    WorkerThreads,
)

__all__ = [
    "HANDOVER_MS",
    "MAKING",
    "REBUILT",
    "SIGNS",
    "WITHOUT_CPU",
    "Attention",
    "AttentionPrice",
    "Backend",
    "BatchPrice",
    "BatchPrices",
    "Bursts",
    "CallSite",
    "CapPrice",
    "CapPrices",
    "Cause",
    "Check",
    "CodeLine",
    "CollectSite",
    "Compute",
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
    "IndexUse",
    "InputWait",
    "Job",
    "Lack",
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
    "Overlap",
    "Part",
    "Precision",
    "Recurrent",
    "RequestPrice",
    "Savings",
    "Severity",
    "Signs",
    "Site",
    "Step",
    "ThreadGain",
    "ThreadPrice",
    "Threads",
    "UpdatePrice",
    "WorkerThreads",
    "are_bound",
    "bursts",
    "cannot_tell",
    "cap_cost",
    "clear",
    "compute",
    "found",
    "in_step",
    "input_wait",
    "lack_of_cpu",
    "location",
    "milliseconds",
    "not_applicable",
    "overlap",
    "restart",
    "savings",
    "severity",
    "share",
    "thread_gain",
    "type_cost",
    "with_cpus",
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


def milliseconds(name: str, value: float, label: str = "") -> Measurement:
    """A duration per step, or of one event as the label says."""
    return Measurement(name, value, "ms", label)


def share(name: str, value: float, label: str = "") -> Measurement:
    """A fraction of 1."""
    return Measurement(name, value, "share", label)
