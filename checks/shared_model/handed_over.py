"""Parts of a forward pass that the training thread hands to a pool of threads, and that it does faster by itself."""

from __future__ import annotations

from perfdoctor.api.causes import PASSES_KEEP, tried
from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, location, milliseconds, savings
from perfdoctor.api.quantities import Evidence, Missing, PassWays, Site

from .._shared.lines import forward_line
from .case import Forwards, Limits

_WAY = "no pool"
"""In which whole passes were made again."""


def handed_over(case: Forwards, limits: Limits) -> Finding | None:
    """By whole passes that were made again without the pool."""
    evidence, step, ops = case.evidence, case.step, case.evidence.ops
    if isinstance(ops, Missing) or isinstance(ops.ways, Missing):
        return None
    saved = tried(step, ops, _WAY)
    if saved is None or saved < limits.min_share * step.step_ms:
        return None
    cost = Cost(step, saved)
    return Finding(
        id="PD06.threads-in-forward",
        severity=cost.severity(limits.min_share, limits.error_share),
        confidence=Confidence.HIGH,
        message="the forward pass hands calls to a pool of threads, which makes it slower: {cost_ms} per step "
        "({cost_share})",
        reasoning="forward and backward were made again after the last step, with the pool in {now_ms} and with its "
        "calls made one after another by the training thread in {alone_ms}: each thread of a pool has "
        "{intra_op:compute thread} of its own, for {usable:CPU}, and Python's lock lets one of them run at a time",
        evidence=(
            *cost.measured("what the pool costs"),
            *_measured(ops.ways),
            Measurement("intra_op", case.intra_op, "count", "compute threads of each thread"),
            Measurement("usable", round(case.usable, 1), "count", "CPUs left to the job"),
        ),
        location=location(_line(evidence)),
        fix=Fix(
            text="Make the calls one after another, or one call of all their inputs as a batch: operators use all CPUs "
            "by themselves.",
            code="outputs = list(map(part, inputs))  # in place of pool.map(part, inputs)",
            risk="A pool that reads files or waits for a network is worth its threads: leave that one.",
        ),
        savings=savings(
            step,
            PASSES_KEEP[0] * saved,
            PASSES_KEEP[1] * saved,
            "whole forward and backward passes made again without the pool after the last step",
        ),
    )


def _line(evidence: Evidence) -> Site | None:
    """Where the training thread is longest in the forward pass: it waits there for the pool."""
    lines = () if isinstance(evidence.code_lines, Missing) else evidence.code_lines
    return next((line.site for line in lines if line.part == "forward"), None) or forward_line(evidence)


def _measured(ways: PassWays) -> tuple[Measurement, ...]:
    return (
        milliseconds("now_ms", ways.now_ms, "forward and backward with the pool"),
        milliseconds("alone_ms", dict(ways.times)[_WAY], "without it"),
    )
