"""Tensors that are written out as text in every step, for a log that may not even show it."""

from __future__ import annotations

from collections.abc import Iterable

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, Part, location
from perfdoctor.api.quantities import CodeLine, Evidence, Line, Missing, Site, Step

from .._shared.lines import PYTHON_PARTS, key
from .limits import Limits

_WRITER = "torch/_tensor_str.py:"
_SAVED = (0.8, 1.0)
"""Of the lines: the call that may log is left."""


def is_text(site: Site) -> bool:
    """Whether torch reads numbers there to write them out."""
    return site.via.startswith(_WRITER)


def tensors_as_text(evidence: Evidence, step: Step, limits: Limits) -> Finding | None:
    """All such lines together."""
    calls = () if isinstance(evidence.call_sites, Missing) else evidence.call_sites
    found = [call for call in calls if is_text(call.site)]
    lines = {key(call.site): 0.0 for call in found}
    for line in _lines(evidence):
        if line.part in PYTHON_PARTS and key(line.site) in lines:
            lines[key(line.site)] = max(lines[key(line.site)], line.ms_per_step)
    cost = Cost(step, sum(lines.values()))
    if cost.share < limits.min_share:
        return None
    dearest = max(found, key=lambda call: lines[key(call.site)])
    return Finding(
        id="PD20.tensors-as-text",
        severity=cost.severity(limits.min_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message="tensors are written out as text in the loop: {cost_ms} per step ({cost_share})",
        reasoning="an f-string, `str()` or `print` of a tensor reads its numbers and formats them one by one, also "
        "where the log's level then drops the text",
        evidence=(
            *cost.measured("in lines that write tensors out"),
            Measurement("lines", len(lines), "count", "such lines"),
            Measurement(
                "reads", sum(call.calls_per_step for call in found), "count", "reads of numbers there, per step"
            ),
        ),
        location=location(dearest.site),
        fix=Fix(
            text="Give the log the tensor and let it format what it shows; or write every hundredth step, or a norm.",
            code='log.debug("hidden %s", hidden)  # not f"hidden {{hidden}}"',
        ),
        savings=cost.savings(_SAVED, "the lines' time, watched in a step or two of the job itself", Part.OTHER),
    )


def _lines(evidence: Evidence) -> Iterable[CodeLine | Line]:
    for lines in (evidence.code_lines, evidence.hot_lines):
        if not isinstance(lines, Missing):
            yield from lines
