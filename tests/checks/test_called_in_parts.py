"""Modules that a loop calls with one part after the other."""

from __future__ import annotations

import pytest
from ill_runs.batch_size import PART_LINE, in_parts
from perfdoctor.checks.batch_size import CHECK
from samples import HOT_LINES, asked, ids, is_clear, number, with_

from perfdoctor.diagnosis.findings import Severity

examined, found = asked(CHECK)


def test_it_is_told_at_the_line_that_calls_it_with_what_several_parts_take() -> None:
    finding = found(in_parts())
    assert (finding.id, finding.severity) == ("PD05.called-in-parts", Severity.WARNING)
    assert finding.location is not None and finding.location.line == PART_LINE.line
    assert (number(finding, "calls"), number(finding, "together_ms")) == (16.0, 2.0)
    assert "for t in range(T)" in finding.fix.text


def test_it_saves_at_least_what_as_many_at_once_do_as_were_timed() -> None:
    """Four parts take 2 ms in place of 4, all 16 then 6 of 16, a tenth more or less."""
    savings = found(in_parts()).savings
    assert savings.low_ms == pytest.approx(16.0 * (1 - 1.1 * 2.0 / 4.0))
    assert savings.high_ms == pytest.approx(16.0 * (1 - 0.9 * 6.0 / 16.0))


def test_two_parts_at_once_will_do() -> None:
    seen = in_parts()
    (one,) = seen.ops.in_parts  # type: ignore[union-attr]
    shorter = with_(seen, ops__in_parts=(with_(one, times=((1, 1.0), (2, 1.2))),))
    assert found(shorter).savings.low_ms == pytest.approx(16.0 * (1 - 1.1 * 1.2 / 2.0))


@pytest.mark.parametrize("together_ms", [3.8, 4.4])
def test_parts_that_take_as_long_together_are_clear(together_ms: float) -> None:
    assert is_clear(examined(in_parts(together_ms)))


def test_modules_take_no_longer_than_the_passes_of_the_step() -> None:
    seen = in_parts(milliseconds=500.0)
    step = seen.step
    assert found(seen).savings.ceiling_ms <= step.parts.forward + step.parts.backward  # type: ignore[union-attr]


def test_a_loop_whose_line_issues_the_operators_is_for_others() -> None:
    seen = in_parts()
    own = with_(HOT_LINES[1], site=PART_LINE, ms_per_step=6.0)
    assert "PD05.called-in-parts" not in ids(examined(with_(seen, hot_lines=(own,))))
