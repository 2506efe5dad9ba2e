"""Modules that compute the same rows several times over."""

from __future__ import annotations

import pytest
from ill_runs.cpu_ops import TOWER_LINE, repeated_rows
from perfdoctor.checks.cpu_ops import CHECK
from samples import asked, is_clear, number

from perfdoctor.diagnosis.findings import Severity

examined, found = asked(CHECK)


def test_it_is_told_at_the_line_that_calls_it_with_what_each_row_once_takes() -> None:
    finding = found(repeated_rows())
    assert (finding.id, finding.severity) == ("PD10.repeated-rows", Severity.ERROR)
    assert finding.location is not None and finding.location.line == TOWER_LINE.line
    assert (number(finding, "rows"), number(finding, "different")) == (640, 32)
    assert finding.savings.low_ms == pytest.approx(12.0 * (1 - 1.1 / 8.0))
    assert finding.savings.high_ms == pytest.approx(12.0 * (1 - 0.9 / 8.0))


@pytest.mark.parametrize(("once_ms", "milliseconds"), [(7.0, 12.0), (1.0, 1.2)])
def test_what_saves_little_is_clear(once_ms: float, milliseconds: float) -> None:
    assert is_clear(examined(repeated_rows(once_ms, milliseconds)))


def test_modules_take_no_longer_than_the_passes_of_the_step() -> None:
    seen = repeated_rows(milliseconds=500.0)
    step = seen.step
    assert found(seen).savings.ceiling_ms <= step.parts.forward + step.parts.backward  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("different", "commonest", "severity"),
    [(32, 20, Severity.ERROR), (1, 640, Severity.ERROR), (320, 2, Severity.NOTE), (100, 400, Severity.NOTE)],
    ids=["each often", "one for all", "each twice", "mostly padding"],
)
def test_rows_that_come_twice_are_an_opportunity(different: int, commonest: int, severity: Severity) -> None:
    assert found(repeated_rows(different=different, commonest=commonest)).severity is severity
