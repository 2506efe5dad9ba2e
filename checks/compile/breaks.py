"""Lines at which compiled code goes on in Python."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Finding, Fix, Measurement, Severity, location
from perfdoctor.api.quantities import Compilation, GraphBreak, Step

from .limits import Limits, unknown

_SHOWN = 3
"""Breaks named in the evidence."""


def graph_breaks(step: Step, compilation: Compilation, limits: Limits) -> Finding | None:
    breaks = compilation.breaks
    if len(breaks) < limits.breaks:
        return None
    return Finding(
        id="PD18.graph-breaks",
        severity=Severity.NOTE,
        confidence=Confidence.HIGH,
        message="compiled code goes on in Python at {breaks:line}",
        reasoning="what lies on both sides of a break is compiled apart, and not fused",
        evidence=(
            Measurement("breaks", len(breaks), "count", "lines that break a graph"),
            *(Measurement(f"break_{i}", _said(one), "text", "break") for i, one in enumerate(breaks[:_SHOWN], 1)),
        ),
        location=location(breaks[0].site),
        fix=Fix(
            text="Take prints and reads out of the compiled function, and choose with `torch.where` instead of `if`.",
            code="torch._dynamo.explain(model)(batch)  # lists every break with its reason",
        ),
        savings=unknown(step, "what the whole graph would take was not seen"),
    )


def _said(one: GraphBreak) -> str:
    place = f"{one.site.file}:{one.site.line}"
    return f"{place} ({one.reason})" if one.reason else place
