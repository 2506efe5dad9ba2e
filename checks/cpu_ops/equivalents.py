"""Operators for which others make the same numbers in less time: other orders of products, rows that are indexed, sums
of products by one product of matrices, fewer numbers sorted, parts that are joined once."""

from __future__ import annotations

import math
from dataclasses import replace

from perfdoctor.api.findings import (
    Confidence,
    Cost,
    Finding,
    Fix,
    Measurement,
    Severity,
    location,
    milliseconds,
    present,
    savings,
)
from perfdoctor.api.quantities import Equivalent, Evidence, Missing, Step

from .._shared.lines import key
from .._shared.page_faults import page_faults_ms
from .._shared.spread import Spread, spread, starts_of
from .limits import Limits
from .rewritings import EQUATION, REWRITINGS

_REBUILT = "rebuilt"
_NOW = (0.85, 1.15)
"""Of operators that need not run, around what they took in the steps that were watched."""
_APART, _NOW_APART = "taken-apart", (0.85, 2.2)
"""Of what was timed apart, with one tensor after another at the same place in memory: four tensors of 0.8 to 16 MB were
taken apart for 1.1, 1.2, 2.0 and 2.4 times as much in a backward pass of nothing else, and one for 1.8 in a job."""
_THERE, _BACK = "half-transform", "real-transform"
_DECIDED_ONCE = {"transform": True, _THERE: False, _BACK: False}
"""Kinds of which one choice, a length say, decides what several lines take; and whether their shapes are the same."""
_FAULTED = (0.25, 0.75)
"""Of the page faults: some are in what was timed, and memory is faulted in for other numbers too."""
_BYTES, _PAGE = 4, 4096
_MOSTLY, _OF_IT = 0.5, 0.2
"""Of all faults outside the backward pass, those of the line; of those, the pages of what need not be made."""
_OTHER = (1.5, 0.9)
"""Of what the others took when they were tried: right after the first ones, whose numbers were at hand."""


def equivalents(evidence: Evidence, step: Step, limits: Limits) -> tuple[Finding, ...]:
    """One for each kind and line, or for each choice; none where nobody looked, or the others save little."""
    starts = starts_of(evidence.epoch_starts)
    growing = _growing(evidence)
    every = spread(evidence.equivalents, starts.equivalents if starts else (), starts)
    found = [(one, often) for one, often in every if one.kind != _REBUILT or key(one.at) not in growing]
    alike: dict[object, list[tuple[Equivalent, Spread]]] = {}
    for row, (one, often) in enumerate(found):
        alike.setdefault(_decided(one, often, row), []).append((one, often))
    # What goes there may be needed in whole, unless half of it makes what comes back.
    several = (rows for rows in alike.values() if any(one.kind != _THERE for one, _ in rows))
    return present(*(_finding(evidence, step, [one for one, _ in rows], limits, rows[0][1]) for rows in several))


def _decided(one: Equivalent, often: Spread, row: int) -> object:
    """What is the same for all rows that one choice decides."""
    if one.kind not in _DECIDED_ONCE:
        return row
    return (one.kind, one.shape, often) if _DECIDED_ONCE[one.kind] else (_BACK, often)


def _growing(evidence: Evidence) -> set[tuple[str, int]]:
    """Lines at which a tensor grows so that steps get longer, which PD15 tells."""
    growth = evidence.growth
    if isinstance(growth, Missing) or isinstance(growth.trend, Missing) or not growth.trend.is_gradual:
        return set()
    return {key(tensor.site) for tensor in growth.tensors if tensor.site is not None}


def _faults_ms(evidence: Evidence, one: Equivalent) -> float:
    """What a step's page faults take, as far as this line makes them, for numbers that need not be made: operators that
    are tried find their memory there. A step of 60 ms with 30 of them was told 6 to 20, and took 34 without."""
    lines = () if isinstance(evidence.hot_lines, Missing) else evidence.hot_lines
    made = [line for line in lines if line.part != "backward"]
    whole = sum(line.faults_per_step for line in made)
    here = sum(line.faults_per_step for line in made if key(line.site) in (key(one.at), key(one.then_at)))
    pages = math.prod(one.shape) * _BYTES / _PAGE
    if whole <= 0 or here < _MOSTLY * whole or pages < _OF_IT * here:
        return 0.0
    return here / whole * page_faults_ms(evidence)


def _together(rows: list[Equivalent]) -> Equivalent:
    """What several lines take, at the one that takes most."""
    return replace(
        max(rows, key=lambda one: one.now_ms),
        times_per_step=sum(one.times_per_step for one in rows),
        forward_ms=sum(one.forward_ms for one in rows),
        backward_ms=sum(one.backward_ms for one in rows),
        other_forward_ms=sum(one.other_forward_ms for one in rows),
        other_backward_ms=sum(one.other_backward_ms for one in rows),
    )


def _finding(evidence: Evidence, step: Step, rows: list[Equivalent], limits: Limits, often: Spread) -> Finding | None:
    one, faults_ms = _together(rows), _faults_ms(evidence, rows[0])
    around = _NOW_APART if one.kind == _APART else _NOW
    low, high = (
        max(0.0, now * one.now_ms + faulted * faults_ms - other * one.other_ms)
        for now, faulted, other in zip(around, _FAULTED, _OTHER, strict=True)
    )
    cost = Cost(step, (low + high) / 2)
    if often.share(step, cost.ms) < limits.repeated_share:
        return None
    how = REWRITINGS[one.kind]
    return Finding(
        id=how.id,
        severity=cost.severity(limits.repeated_share, limits.error_share) if how.is_ill else Severity.NOTE,
        confidence=Confidence.HIGH,
        message=how.message + ": {cost_ms} per step ({cost_share})" + often.clause,
        reasoning=how.reasoning + "; as it is: {now_ms} per step, forwards and backwards; " + how.known,
        evidence=(
            *often.measured(cost),
            Measurement("shape", " x ".join(str(size) for size in one.shape), "text", "what need not be made"),
            Measurement("times", one.times_per_step * often.every, "count", f"times {often.each}"),
            Measurement("then_at", ", ".join(str(row.then_at) for row in rows), "text", "where it ends"),
            milliseconds("now_ms", one.now_ms, "these operators and their part of the backward pass, per step"),
            milliseconds("other_ms", one.other_ms, "the other way, backward pass included"),
        ),
        location=location((evidence.job.option(*how.options) if one.at.via else None) or one.at),
        fix=Fix(text=how.text, code=how.code.replace(EQUATION, one.equation), risk=how.risk, remedies=how.remedies),
        savings=savings(
            step,
            low,
            high,
            "both ways, timed in a step or two of the job itself",
            ceiling=min(high, step.parts.backward if one.kind == _APART else one.now_ms + faults_ms),
            part=often.part,
        ),
    )
