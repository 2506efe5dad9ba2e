"""Work that training does not need: metrics in each step, and results that nobody reads."""

from __future__ import annotations

from typing import Any

import pytest
from ill_runs.aside import DECODER_LINE, METRIC_LINE, metric, unused
from ill_runs.evaluation_and_logging import scoring
from ill_runs.growth import expanding_window
from ill_runs.repeated_work import repeated
from perfdoctor.checks import cpu_ops, evaluation_and_logging
from samples import healthy, ids, only, with_

from perfdoctor.diagnosis.findings import Finding, Severity
from perfdoctor.evidence.model import Evidence, Missing


def _metrics(evidence: Evidence) -> list[Finding]:
    outcome = evaluation_and_logging.examine(evidence, evaluation_and_logging.CHECK.limits)
    return [one for one in outcome.findings if one.id == "PD20.metrics-in-each-step"]


def _unused(evidence: Evidence) -> list[str]:
    return ids(cpu_ops.examine(evidence, cpu_ops.CHECK.limits))


def test_a_metric_in_each_step_is_an_opportunity_at_its_line() -> None:
    (finding,) = _metrics(metric())
    assert finding.location is not None and finding.location.line == METRIC_LINE.line
    assert finding.severity is Severity.NOTE
    assert finding.savings.low_ms == pytest.approx(0.99 * (0.85 * 5.0 + 40 * 0.002))
    assert finding.savings.high_ms == pytest.approx(0.99 * (1.15 * 5.0 + 40 * 0.010))


def test_a_metric_of_all_steps_so_far_takes_longer_with_each() -> None:
    (finding,) = _metrics(metric(forward_ms=1.0, grows=True, later_ms=8.0))
    assert finding.savings.low_ms == pytest.approx(0.99 * (0.85 + 40 * 0.002))
    assert finding.savings.high_ms == pytest.approx(0.99 * 8.0)
    assert "more with each step" in finding.reasoning


def test_what_nobody_reads_is_an_ill_at_its_line() -> None:
    finding = only(cpu_ops.examine(unused(), cpu_ops.CHECK.limits))
    assert finding.id == "PD10.unused-work"
    assert finding.location is not None and finding.location.line == DECODER_LINE.line
    assert finding.severity is Severity.WARNING
    assert finding.savings.low_ms == pytest.approx(0.85 * 4.0 + 6 * 0.002)


@pytest.mark.parametrize(("forward_ms", "count"), [(0.5, 0), (1.0, 0), (1.5, 1)])
def test_both_count_from_a_twentieth_of_the_step_on(forward_ms: float, count: int) -> None:
    assert len(_metrics(metric(forward_ms=forward_ms, ops_per_step=2.0))) == count
    assert len(_unused(unused(forward_ms=forward_ms, ops_per_step=2.0))) == count


def test_what_is_computed_again_at_the_line_is_told_as_such() -> None:
    again = repeated(at=METRIC_LINE).repeated_work
    assert not _metrics(with_(metric(), repeated_work=again))
    again = repeated(at=DECODER_LINE).repeated_work
    assert _unused(with_(unused(), repeated_work=again)) == ["PD10.repeated-work"]


def test_where_every_step_evaluates_its_metrics_are_the_evaluations() -> None:
    assert not _metrics(with_(scoring(), metrics=metric().metrics))


def test_nothing_seen_is_no_finding() -> None:
    evidence = with_(healthy(), metrics=Missing("not reached"), unused_work=Missing("not reached"))
    assert not _metrics(evidence) and not _unused(evidence)


@pytest.mark.parametrize(("changes", "count"), [({}, 0), ({"starts_anew": False}, 1), ({"forward_ms": 1.0}, 1)])
def test_a_metric_that_grows_and_starts_anew_is_told_once(changes: dict[str, Any], count: int) -> None:
    growing = expanding_window(starts_anew=True).growing_work
    assert not isinstance(growing, Missing)
    run = metric()
    assert not isinstance(run.metrics, Missing)
    grows = (with_(growing[0], at=run.metrics[0].at, **changes),)
    assert len(_metrics(with_(run, growing_work=grows))) == count
