"""Losses that are multiplied by 0."""

from __future__ import annotations

import pytest
from ill_runs.aside import METRIC_LINE, weighted
from perfdoctor.checks.cpu_ops import CHECK
from samples import asked, ids, number

from perfdoctor.diagnosis.findings import Severity

examined, found = asked(CHECK)


def test_a_loss_that_counts_nothing_is_told_at_its_product() -> None:
    finding = found(weighted())
    assert (finding.id, finding.severity) == ("PD10.weighted-by-zero", Severity.NOTE)
    assert finding.location is not None and finding.location.line == METRIC_LINE.line
    assert number(finding, "cost_ms") == 6.0
    assert finding.savings.low_ms == pytest.approx(0.85 * 6.0 + 0.014)
    assert finding.savings.high_ms == pytest.approx(1.15 * 6.0 + 0.07)


@pytest.mark.parametrize(("backward_ms", "told"), [(0.8, False), (1.5, True)])
def test_a_twentieth_of_the_step_is_enough(backward_ms: float, told: bool) -> None:
    """One that is logged counts by what its backward pass takes alone."""
    run = weighted(forward_ms=0.0, backward_ms=backward_ms)
    assert ("PD10.weighted-by-zero" in ids(examined(run))) is told
