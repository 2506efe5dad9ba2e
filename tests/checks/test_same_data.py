"""Ranks that each go through all of the data."""

from __future__ import annotations

import pytest
from ill_runs.communication import LOADER, shared_data, two_ranks
from perfdoctor.checks.communication import CHECK
from samples import asked, is_clear, number

from perfdoctor.diagnosis.findings import Severity

examined, found = asked(CHECK)


def test_it_is_an_opportunity_at_the_line_of_the_loader() -> None:
    finding = found(shared_data())
    assert (finding.id, finding.severity) == ("PD19.same-data", Severity.NOTE)
    assert finding.location is not None and finding.location.line == LOADER.line
    assert (number(finding, "ranks"), number(finding, "samples")) == (2, 6000)
    assert finding.savings.counted
    step = shared_data().step
    assert finding.savings.high_ms == pytest.approx(step.step_ms / 2)  # type: ignore[union-attr]


def test_ranks_with_data_of_their_own_are_clear() -> None:
    assert is_clear(examined(two_ranks()))
