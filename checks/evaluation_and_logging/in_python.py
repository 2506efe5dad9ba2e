"""Metrics in every step of training: numbers are read into lists, and what Python computes of them stays there."""

from __future__ import annotations

from collections import defaultdict

from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Fix,
    Measurement,
    Severity,
    location,
    milliseconds,
    savings,
    share,
)
from perfdoctor.api.quantities import CodeLine, Evidence, Step

from .._shared.in_python import lines_in_python, lists_read, named
from .._shared.lines import key
from .as_text import is_text
from .limits import Limits

_SAVED = (0.5, 0.95)
"""Of what the lines seem to take: watching them adds about a microsecond to each, which short ones feel."""
_NAMES = 3


def metrics_in_python(evidence: Evidence, step: Step, limits: Limits) -> Finding | None:
    """At most one."""
    lists = lists_read(evidence)
    as_text = {key(call.site) for call in lists if is_text(call.site)}
    lists = [call for call in lists if key(call.site) not in as_text]
    if not lists:
        return None
    lines = [line for line in lines_in_python(evidence) if key(line.site) not in as_text]
    spent_ms = sum(line.ms_per_step for line in lines)
    if spent_ms < limits.min_python_share * step.step_ms:
        return None
    read = max(lists, key=lambda call: call.ms_per_step)
    low, high = (fraction * spent_ms for fraction in _SAVED)
    return Finding(
        id="PD20.metrics-in-python",
        severity=Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message="lists of numbers read from tensors are computed with in Python: {python_ms} per step ({python_share})",
        reasoning="most of it in {functions}; these lines issue hardly any operators, and no tensor is made of a list "
        "afterwards, so training hardly needs what they compute",
        evidence=(
            milliseconds("python_ms", spent_ms, "in lines without operators, per step"),
            share("python_share", spent_ms / step.step_ms, "of the step"),
            Measurement("functions", _functions(lines), "text", "where, the worst first"),
            Measurement("reads", read.calls_per_step, "count", "`tolist()` of the line named, per step"),
        ),
        location=location(read.site),
        fix=Fix(
            text="If it is a metric, compute it every hundredth step or in the evaluation; or on whole tensors.",
            code="if step % 100 == 0:\n    quality = metric(guesses.tolist(), labels.tolist())",
            risk="The curve has fewer points, and a running mean of them weighs steps differently.",
        ),
        savings=savings(step, low, high, "half to nearly all of the time of the lines without operators"),
    )


def _functions(lines: list[CodeLine]) -> str:
    """With the first line seen of each."""
    spent: defaultdict[str, float] = defaultdict(float)
    place: dict[str, CodeLine] = {}
    for line in lines:
        name = line.site.function.rpartition(".<locals>.")[2]
        spent[name] += line.ms_per_step
        place.setdefault(name, line)
    names = sorted(spent, key=lambda name: -spent[name])[:_NAMES]
    return ", ".join(named(place[name].site) for name in names)
