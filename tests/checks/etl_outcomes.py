"""What PD03 says of a piece of evidence."""

from __future__ import annotations

from perfdoctor.checks.etl import CHECK
from samples import asked, only

from perfdoctor.evidence.model import Evidence

examined, found = asked(CHECK)


def name_of(evidence: Evidence) -> str:
    """The finding's name, or the outcome's kind without one."""
    outcome = examined(evidence)
    return only(outcome).id.partition(".")[2] if outcome.findings else outcome.kind.value
