"""Modules that a loop calls for one position of a sequence after the other, or for one more each time."""

from __future__ import annotations

import pytest
from ill_runs.cpu_ops import DECODER_LINE, by_prefix, in_turn, sequential_loop
from perfdoctor.checks.cpu_ops import CHECK
from samples import asked, ids, is_clear, number, with_

from perfdoctor.diagnosis.findings import Severity

examined, found = asked(CHECK)


def test_it_is_told_at_the_line_that_calls_it_with_what_all_positions_at_once_take() -> None:
    """20 ms in turn and 10 at once, of 18 in the step, a tenth more or less."""
    finding = found(in_turn())
    assert (finding.id, finding.severity) == ("PD10.called-in-turn", Severity.ERROR)
    assert finding.location is not None and finding.location.line == DECODER_LINE.line
    assert (number(finding, "calls"), number(finding, "once_ms")) == (40.0, 5.0)
    assert "for t in range(T)" in finding.fix.text
    assert finding.savings.low_ms == pytest.approx(18.0 * (1 - 1.1 * 10.0 / 20.0))
    assert finding.savings.high_ms == pytest.approx(18.0 * (1 - 0.9 * 10.0 / 20.0))


def test_one_that_is_given_longer_and_longer_beginnings_is_told_with_what_the_last_of_them_takes() -> None:
    """40 times 0.5 ms now, 2 ms at once."""
    finding = found(by_prefix())
    assert (finding.id, finding.severity) == ("PD10.called-by-prefix", Severity.ERROR)
    assert "before `for t in range(1, T)`" in finding.fix.text
    assert finding.savings.low_ms == pytest.approx(18.0 * (1 - 1.1 * 2.0 / 20.0))
    assert is_clear(examined(by_prefix(once_ms=18.0)))


@pytest.mark.parametrize(("once_ms", "milliseconds"), [(18.0, 18.0), (25.0, 18.0), (10.0, 1.5)])
def test_what_saves_little_is_clear(once_ms: float, milliseconds: float) -> None:
    assert is_clear(examined(in_turn(once_ms, milliseconds)))


def test_its_loop_is_not_told_to_run_in_turn_by_need() -> None:
    sequential = sequential_loop("state")
    (header,) = {line.loop.header for line in sequential.hot_lines if line.loop is not None}  # type: ignore[union-attr]
    assert ids(examined(sequential)) == ["PD10.sequential-loop"]
    both = with_(sequential, ops=in_turn(loop=header).ops)
    assert ids(examined(both)) == ["PD10.called-in-turn"]
    (one,) = both.ops.in_turn  # type: ignore[union-attr]
    another = with_(both, ops__in_turn=(with_(one, loop_line=90),))
    assert sorted(ids(examined(another))) == ["PD10.called-in-turn", "PD10.sequential-loop"]
