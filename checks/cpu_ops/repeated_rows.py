"""Modules that compute the same rows several times over."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Fix,
    Measurement,
    Severity,
    location,
    milliseconds,
    present,
    savings,
)
from perfdoctor.api.quantities import Evidence, Missing, RepeatedRows, Step

from .._shared.run_again import passes_cost, saved
from .limits import Limits

_OFTEN = 4
"""Times that a row comes, from which on it is surely repeated for something: each pair of atoms comes twice, and few
would pick them apart for that."""


def repeated_rows(evidence: Evidence, step: Step, limits: Limits) -> tuple[Finding, ...]:
    """One for each module of which a pass with each row once is known to save enough."""
    if isinstance(evidence.ops, Missing):
        return ()
    return present(*(_finding(step, one, limits) for one in evidence.ops.repeated_rows))


def _finding(step: Step, one: RepeatedRows, limits: Limits) -> Finding | None:
    cost = passes_cost(step, one.milliseconds)
    low, high = saved(cost, one.now_ms, one.once_ms)
    if low < limits.repeated_share * step.step_ms:
        return None
    return Finding(
        id="PD10.repeated-rows",
        severity=cost.severity(limits.repeated_share, limits.error_share) if _is_often(one) else Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message="{layer} is given {rows:row}, {different:different row}: {cost_ms} per step ({cost_share})",
        reasoning="rows that are the same give the same; a pass with each once takes {once_ms}, with all {now_ms}, "
        "forwards and backwards, timed after the last step",
        evidence=(
            *cost.measured("in this module and all that it holds"),
            Measurement("layer", one.name or one.kind, "text", "the module"),
            Measurement("rows", one.rows, "count", "rows that it is given"),
            Measurement("different", one.different, "count", "of them that differ"),
            milliseconds("now_ms", one.now_ms, "a pass with all of them"),
            milliseconds("once_ms", one.once_ms, "a pass with each once"),
        ),
        location=location(one.at),
        fix=Fix(
            text="Call it before the rows are repeated, or picked, and repeat what comes out.",
            code="user = self.tower(history).repeat_interleave(k, 0)  # not of history.repeat_interleave(k, 0)\n"
            "message = self.linear(x)[source]  # not self.linear(x[source])",
            risk="None: the same numbers, up to rounding.",
        ),
        savings=savings(step, low, high, "the module's own pass, run again with all rows and with each once"),
    )


def _is_often(one: RepeatedRows) -> bool:
    """But for the commonest row, which may be padding."""
    return one.different == 1 or one.rows - one.commonest >= _OFTEN * (one.different - 1)
