"""Outputs that a trainer joins for the metrics of an evaluation."""

from __future__ import annotations

import pytest
from ill_runs.evaluation_and_logging import evaluating, outputs_joined
from perfdoctor.checks.evaluation_and_logging import CHECK, examine
from samples import ids, number, with_

from perfdoctor.diagnosis.findings import Finding, Part, Severity
from perfdoctor.evidence.model import Evidence, Missing, Site, TrainerOption


def _found(evidence: Evidence) -> list[Finding]:
    return [one for one in examine(evidence, CHECK.limits).findings if one.id == "PD20.outputs-kept"]


def test_it_is_told_at_the_line_that_calls_the_trainer_with_what_joining_takes() -> None:
    (finding,) = _found(outputs_joined())
    assert finding.location is not None and finding.location.line == 70
    assert finding.severity is Severity.WARNING
    assert (number(finding, "kept_ms"), number(finding, "kept_bytes")) == (500.0, 4e8)
    assert finding.savings.part is Part.EPOCH
    assert (finding.savings.low_ms, finding.savings.high_ms) == (pytest.approx(8.0), pytest.approx(13.0))


def test_where_the_script_gives_the_metrics_that_line_is_named() -> None:
    """Of a call in which a library decides, `trainer.train()` say."""
    evidence = outputs_joined()
    assert not isinstance(evidence.evaluations, Missing) and evidence.evaluations.collected is not None
    kept = with_(evidence.evaluations.collected, at=Site("train.py", 70, "main", via="transformers/trainer.py:train"))
    told = with_(
        evidence,
        evaluations__collected=kept,
        job__options=(TrainerOption("compute_metrics", Site("train.py", 61, "main")),),
    )
    (finding,) = _found(told)
    assert finding.location is not None and finding.location.line == 61


def test_it_is_told_before_how_often_evaluations_come() -> None:
    """Evaluations as long as training: both are told, and the ill comes first."""
    told = ids(examine(outputs_joined(share=0.6), CHECK.limits))
    assert told.index("PD20.outputs-kept") < told.index("PD20.evaluation-too-often")


@pytest.mark.parametrize("evidence", [evaluating(), outputs_joined(kept_ms=50.0)], ids=["no trainer", "classes alone"])
def test_what_is_little_or_nothing_is_not_told(evidence: Evidence) -> None:
    assert not _found(evidence)
