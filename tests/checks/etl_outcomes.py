"""What PD03 says of a piece of evidence."""

from __future__ import annotations

from perfdoctor.checks.etl import CHECK, examine
from samples import only

from perfdoctor.diagnosis.findings import Finding, Outcome
from perfdoctor.evidence.model import Evidence


def examined(evidence: Evidence) -> Outcome:
    return examine(evidence, CHECK.limits)


def found(evidence: Evidence) -> Finding:
    return only(examined(evidence))


def name_of(evidence: Evidence) -> str:
    """The finding's name, or the outcome's kind without one."""
    outcome = examined(evidence)
    return only(outcome).id.partition(".")[2] if outcome.findings else outcome.kind.value
