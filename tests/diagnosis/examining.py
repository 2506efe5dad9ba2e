"""Checks that say what a test wants, and what comes of examining them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

from samples import empty, step, with_

from perfdoctor.config.settings import Config
from perfdoctor.config.suppressions import MalformedComment, Suppression
from perfdoctor.diagnosis.diagnoses import Diagnosis
from perfdoctor.diagnosis.examine import Rules, examine
from perfdoctor.diagnosis.findings import Confidence, Finding, Fix, Location, Measurement, Part, Savings, Severity
from perfdoctor.diagnosis.outcomes import Check, Outcome, found
from perfdoctor.evidence.model import Evidence, Parts, RunEvidence

PARTS = Parts(input_wait=10.0, forward=5.0, backward=8.0, optimizer=2.0, gc=5.0)
STEP = step(PARTS, irregular=4, irregular_ms=4.0)
RANK = with_(empty(), step=STEP)


def finding_of(
    id_: str,
    ceiling: float,
    low: float | None = None,
    high: float | None = None,
    *,
    part: Part = Part.COMPUTE,
    line: int = 1,
) -> Finding:
    top = ceiling if high is None else high
    return Finding(
        id=id_,
        severity=Severity.WARNING,
        confidence=Confidence.HIGH,
        message="it costs {cost_ms}",
        evidence=(Measurement("cost_ms", ceiling, "ms"),),
        fix=Fix("mend it"),
        savings=Savings(ceiling, top if low is None else low, top, ceiling / 30.0, "by decree", part),
        location=Location("train.py", line, "main"),
    )


def check_that(code: str, says: Outcome | Callable[[Evidence], Outcome]) -> tuple[Check[None], None]:
    def judge(evidence: Evidence, _: None) -> Outcome:
        return says if isinstance(says, Outcome) else says(evidence)

    return Check(code, f"name-{code}", f"title of {code}", None, judge), None


def finds(code: str, *findings: Finding) -> tuple[Check[None], None]:
    return check_that(code, found(*findings))


def examined(
    *checks: tuple[Check[Any], Any],
    ranks: tuple[Evidence, ...] = (RANK,),
    config: Config | None = None,
    comment: Suppression | MalformedComment | None = None,
) -> Diagnosis:
    rules = Rules(config or Config(), date(2030, 6, 15), lambda _: comment)
    return examine(RunEvidence(ranks), checks, rules)
