"""Findings in a gate: which of them count, and which are new. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..diagnosis.diagnoses import Diagnosis
from ..diagnosis.findings import Confidence, Finding
from .model import Assume, Judgement, Verdict

FINDING = "finding:"
"""Names of judgements that are about a finding begin with it."""
_OF_THE_MACHINE = "PD12."
"""Findings about neighbours and quotas: what other programs do is no change of the job ..."""
_STARTED = ("PD12.started-each-step", "PD12.programs-in-loop")
"""... but for those that it starts itself."""


def of_the_job(findings: Sequence[Finding]) -> list[Finding]:
    """Without what other programs do."""
    return [one for one in findings if not one.id.startswith(_OF_THE_MACHINE) or one.id in _STARTED]


def in_all(diagnoses: Sequence[Diagnosis], fail_on: str) -> list[Finding]:
    """Findings of the job at or above `fail_on` in every launch: one that comes and goes is none to fail for."""
    if not diagnoses:
        return []
    grave = [{f.fingerprint for f in diagnosis.ranked if f.severity.fails(fail_on)} for diagnosis in diagnoses]
    common = set.intersection(*grave)
    return of_the_job([finding for finding in diagnoses[0].ranked if finding.fingerprint in common])


def certain(before: Sequence[Diagnosis], after: Sequence[Diagnosis], fail_on: str) -> list[Finding]:
    """Those of the arm after that no launch of the arm before has, in any severity.

    One of low confidence counts in a report, and is too little to fail a build for.
    """
    known = {finding.fingerprint for diagnosis in before for finding in diagnosis.ranked}
    found = in_all(after, fail_on)
    return [f for f in found if f.fingerprint not in known and f.confidence is not Confidence.LOW]


def new_findings(known: Collection[str], findings: Sequence[Finding]) -> list[Judgement]:
    """One regression for each finding that was not there before."""
    fresh = {f.fingerprint: f for f in findings if f.fingerprint not in known}
    return [
        Judgement(
            f"{FINDING}{f.id}",
            f"finding {f.id}",
            "count",
            Assume.EXACT,
            0,
            1,
            Verdict.REGRESSION,
            f"new, at {f.location.file}:{f.location.line}" if f.location else "new",
            1,
        )
        for f in fresh.values()
    ]
