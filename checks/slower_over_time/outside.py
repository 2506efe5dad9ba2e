"""Growth because of what lies outside the job's code: memory, a quota, a clock, the allocator."""

from __future__ import annotations

from dataclasses import dataclass, replace

from perfdoctor.api.findings import Confidence, Finding, Fix, Measurement, Savings, milliseconds
from perfdoctor.api.quantities import Slowing

from .growth import MOST, Case

_APART = 2 / 3
"""Of the steps' growth, between the middles of the first and the last third of the run."""

_WHOLE = 10
"""From which on a number of so many per step is told without decimals."""


@dataclass(frozen=True, slots=True)
class _Wording:
    """Of one kind."""

    message: str
    label: str
    unit: str
    fix: Fix
    beside: tuple[str, str] = ("", "")
    """What is told with it: label and unit."""


_WORDINGS = {
    "swapping": _Wording(
        "tasks waited for swap {early} of the time, then {late}",
        "of the time some task waited for memory while pages came from swap",
        "share",
        Fix(
            text="Keep less in memory, run fewer processes beside each other, or give the job more.",
            code="free -h && vmstat 1  # si and so: swapped in and out",
            language="bash",
        ),
    ),
    "throttled": _Wording(
        "a CPU quota stopped the job {early} of the time, then {late}",
        "of the time the control group was stopped",
        "share",
        Fix(
            text="Raise the quota, or have fewer threads and processes in the group.",
            code="docker update --cpus 4 CONTAINER",
            language="bash",
        ),
    ),
    "lower-clock": _Wording(
        "the CPUs' clock fell from {early} to {late} MHz",
        "MHz of the CPUs' clock",
        "count",
        Fix(
            text="See to cooling and to the power limit; a CPU that gets too hot lowers its clock.",
            code="turbostat --quiet --interval 5  # Bzy_MHz, PkgTmp, PkgWatt",
            language="bash",
        ),
    ),
    "page-faults": _Wording(
        "page faults went from {early} to {late} per step",
        "page faults per step",
        "count",
        Fix(
            text="Have the allocator keep memory, or use one that fragments less: jemalloc, or glibc with fixed "
            "thresholds.",
            code="MALLOC_TRIM_THRESHOLD_=4000000000 MALLOC_MMAP_THRESHOLD_=4000000000 python train.py",
            language="bash",
            risk="The process keeps memory that it has once used.",
        ),
    ),
    "gpu-clock": _Wording(
        "the GPU was slowed down from {early} to {late} MHz",
        "MHz of the GPU's clock",
        "count",
        Fix(
            text="See to the GPU's cooling and power supply; one that gets too hot lowers its clock.",
            code="nvidia-smi --query-gpu=clocks_event_reasons.active,temperature.gpu,clocks.sm --format=csv -l 5",
            language="bash",
        ),
        ("degrees Celsius of the GPU", "count"),
    ),
    "cuda-fragmentation": _Wording(
        "the CUDA cache is cut up, for {late:driver allocation} per step",
        "driver allocations and cache flushes per step",
        "count",
        Fix(
            text="Let segments grow instead of being cut, and pad inputs to a few sizes.",
            code="export PYTORCH_ALLOC_CONF=expandable_segments:True",
            language="bash",
        ),
        ("reserved on the device and in no use", "bytes"),
    ),
}


def slowing(case: Case) -> Finding | None:
    """The largest of what grew with the steps, where that explains most of their growth."""
    found = next(iter(case.growth.slowing), None)
    if found is None or found.grown_ms < MOST * _APART * case.trend.grown_ms:
        return None
    return _finding(case, found)


def _finding(case: Case, found: Slowing) -> Finding:
    wording = _WORDINGS[found.kind]
    digits = 3 if wording.unit == "share" else 0 if found.late >= _WHOLE else 2
    beside: tuple[Measurement, ...] = ()
    if found.beside is not None:
        label, unit = wording.beside
        beside = tuple(
            Measurement(name, round(value), unit, f"{label}, {when}")  # type: ignore[arg-type]
            for name, value, when in zip(
                ("beside", "beside_late"), found.beside, ("at first", "in the end"), strict=True
            )
        )
    return Finding(
        id=f"PD15.{found.kind}",
        severity=case.severity,
        confidence=Confidence.MEDIUM,
        message="steps went from {early_ms} to {late_ms}: " + wording.message,
        reasoning="that makes a step longer by about {grown_ms} over the middle of the run, and nothing that the job "
        "keeps explains it" + case.rate,
        evidence=(
            *case.measured,
            Measurement("early", round(found.early, digits), wording.unit, f"{wording.label}, at first"),  # type: ignore[arg-type]
            Measurement("late", round(found.late, digits), wording.unit, f"{wording.label}, in the end"),  # type: ignore[arg-type]
            milliseconds("grown_ms", found.grown_ms, "of a step's growth by it"),
            *beside,
        ),
        fix=wording.fix,
        savings=_share_of(case, found),
    )


def _share_of(case: Case, found: Slowing) -> Savings:
    """What it explains of the growth can be saved, and no more."""
    saved, grown_ms = case.saved, _APART * case.trend.grown_ms
    share = min(1.0, found.grown_ms / grown_ms)
    least = share if found.least_ms is None else min(share, found.least_ms / grown_ms)
    low, high = least * saved.low_ms, share * saved.high_ms
    return replace(saved, ceiling_ms=high, low_ms=low, high_ms=high, share=share * saved.share)
