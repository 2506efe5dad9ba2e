"""Layers of one class that a loop calls one after the other."""

from __future__ import annotations

import pytest
from ill_runs.network import HEADS_LINE, one_by_one
from perfdoctor.checks.network import CHECK
from samples import asked, ids, number

from perfdoctor.diagnosis.findings import Severity

examined, found = asked(CHECK)


def test_it_is_an_opportunity_at_the_line_of_their_calls() -> None:
    finding = found(one_by_one())
    assert (finding.id, finding.severity) == ("PD09.one-by-one", Severity.NOTE)
    assert finding.location is not None and finding.location.line == HEADS_LINE.line
    assert (number(finding, "members"), number(finding, "stacked_ms")) == (8, 1.0)
    assert finding.savings.low_ms == pytest.approx(12.0 * (1 - 1.1 / 4.0))
    assert finding.savings.high_ms == pytest.approx(12.0 * (1 - 0.9 / 4.0))


@pytest.mark.parametrize(("stacked_ms", "milliseconds"), [(3.5, 12.0), (5.0, 12.0), (1.0, 1.0)])
def test_what_saves_little_is_not_told(stacked_ms: float, milliseconds: float) -> None:
    assert "PD09.one-by-one" not in ids(examined(one_by_one(stacked_ms, milliseconds)))
