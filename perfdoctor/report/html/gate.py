"""A gate as an HTML page: the verdict, the pairs of launches, what grew, and both diagnoses side by side."""

from __future__ import annotations

from dataclasses import dataclass

from ...diagnosis.diagnoses import Diagnosis
from ...gate.model import GateResult
from ..content import Content, FindingText, prepare
from ..gate_words import prepare_gate
from .bars import Segment, segments
from .charts.pairs import pairs_chart
from .page import page


@dataclass(frozen=True, slots=True)
class ArmView:
    """One arm's launch with perfdoctor's windows in it."""

    title: str
    report: Content
    bar: tuple[Segment, ...]
    findings: tuple[tuple[FindingText, bool], ...]
    """With whether the other arm has none like it."""
    alone: str
    """What to say of those."""


def render_gate_html(
    result: GateResult, tolerance: float | None = None, diagnoses: tuple[Diagnosis, Diagnosis] | None = None
) -> str:
    """The whole gate, ending in a newline. `tolerance`: of a slowdown, 0.05 is 5 %, None where it is not known;
    `diagnoses`: of the arms' kept recordings, None where one has none."""
    content = prepare_gate(result)
    pairs = pairs_chart(result, tolerance)
    return page(
        "gate.html.j2",
        {} if pairs is None else {"pairs": pairs},
        title=f"perfdoctor gate: {content.headline}",
        gate=content,
        arms=() if diagnoses is None else _arms(*diagnoses),
    )


def _arms(before: Diagnosis, after: Diagnosis) -> tuple[ArmView, ArmView]:
    return _arm("Before", "No longer found.", before, after), _arm("Now", "New.", after, before)


def _arm(title: str, alone: str, diagnosis: Diagnosis, other: Diagnosis) -> ArmView:
    report = prepare(diagnosis)
    known = {finding.fingerprint for finding in other.ranked}
    found = [text for section in report.sections for text in section.findings]
    return ArmView(
        title,
        report,
        segments(report.anatomy),
        tuple((text, text.finding.fingerprint not in known) for text in found),
        alone,
    )
