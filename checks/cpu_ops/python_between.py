"""Functions that compute in Python, or in libraries other than torch, between two steps: before each epoch, say."""

from __future__ import annotations

from collections import defaultdict

from perfdoctor.api.findings import (
    Confidence,
    Cost,
    Finding,
    Fix,
    Measurement,
    Severity,
    location,
    present,
    savings,
    share,
)
from perfdoctor.api.quantities import CodeLine, EpochStarts, Evidence, Step

from .._shared.in_python import named, profilers_calls
from .._shared.lines import PYTHON_PARTS, function, key
from .._shared.spread import Spread, starts_of
from .limits import Limits
from .python_work import SAVED

_TOLD = 0.5
"""Of such a function's time, in what comes out the same each time, from which on PD03 tells that."""


def python_between(evidence: Evidence, step: Step, limits: Limits) -> tuple[Finding, ...]:
    """The dearest function, if it takes enough of the loop's time."""
    starts = starts_of(evidence.epoch_starts)
    if starts is None:
        return ()
    profiler = {key(call.site) for call in profilers_calls(evidence)}
    by_function: defaultdict[tuple[str, str], list[CodeLine]] = defaultdict(list)
    for line in starts.lines:
        if line.part in PYTHON_PARTS and key(line.site) not in profiler:
            by_function[function(line.site)].append(line)
    dearest = max(by_function.values(), key=_ms, default=[])
    return () if not dearest or _is_told(starts, dearest) else present(_finding(step, starts, dearest, limits))


def _ms(lines: list[CodeLine]) -> float:
    return sum(line.ms_per_step for line in lines)


def _is_told(starts: EpochStarts, lines: list[CodeLine]) -> bool:
    place = function(lines[0].site)
    same = (one.ms_per_step for one in starts.rows if place in (function(one.at), function(one.defined_at)))
    return sum(same) >= _TOLD * _ms(lines)


def _finding(step: Step, starts: EpochStarts, lines: list[CodeLine], limits: Limits) -> Finding | None:
    spread, worst = Spread.of(starts), max(lines, key=lambda line: line.ms_per_step)
    cost = Cost(step, _ms(lines) / starts.every_steps)
    if spread.share(step, cost.ms) < limits.loop_share:
        return None
    return Finding(
        id="PD10.python-between-steps",
        severity=Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message=f"{named(worst.site)} computes in Python or NumPy: {{cost_ms}} per step ({{cost_share}})"
        + spread.clause,
        reasoning="training waits for it between two steps, and its lines issue hardly any operators; the line named "
        "takes {worst_share} of that",
        evidence=(
            *spread.measured(cost),
            share("worst_share", worst.ms_per_step / _ms(lines), "of that, in the line named"),
            Measurement("runs", worst.runs_per_step, "count", "runs of that line, each time"),
        ),
        location=location(worst.site),
        fix=Fix(
            text="Compute on whole arrays in place of one element after the other; if it comes out the same each time, "
            "once; or make the next epoch's data in a DataLoader's workers while this one trains.",
            code="negatives = rng.integers(items, size=len(users) * k)  # all at once; not one by one in a loop\n"
            "clash = np.flatnonzero(seen[users.repeat(k), negatives])  # draw those again",
        ),
        savings=savings(
            step,
            SAVED[0] * cost.ms,
            SAVED[1] * cost.ms,
            "a third to all of these lines, timed once between two steps and spread over the steps to the next time",
            part=spread.part,
        ),
    )
