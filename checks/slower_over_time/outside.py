"""Growth because of what lies outside the job's code: memory, a quota, a clock, the allocator."""

from __future__ import annotations

from dataclasses import dataclass, replace

from perfdoctor.api.findings import Confidence, Finding, Fix, Measurement, Savings, milliseconds
from perfdoctor.api.quantities import Slowing

from .growth import MOST, Case

_APART = 2 / 3
"""Of the steps' growth, between the middles of the first and the last third of the run."""


@dataclass(frozen=True, slots=True)
class _Wording:
    """Of one kind."""

    message: str
    label: str
    unit: str
    fix: Fix


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
}


def slowing(case: Case) -> Finding | None:
    """The largest of what grew with the steps, where that explains most of their growth."""
    found = next(iter(case.growth.slowing), None)
    if found is None or found.grown_ms < MOST * _APART * case.trend.grown_ms:
        return None
    return _finding(case, found)


def _finding(case: Case, found: Slowing) -> Finding:
    wording = _WORDINGS[found.kind]
    digits = 3 if wording.unit == "share" else 0
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
        ),
        fix=wording.fix,
        savings=_share_of(case.saved, min(1.0, found.grown_ms / (_APART * case.trend.grown_ms))),
    )


def _share_of(saved: Savings, share: float) -> Savings:
    """What it explains of the growth can be saved, and no more."""
    low, high = share * saved.low_ms, share * saved.high_ms
    return replace(saved, ceiling_ms=high, low_ms=low, high_ms=high, share=share * saved.share)
