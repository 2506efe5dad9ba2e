"""Operators that few networks need in every step."""

from __future__ import annotations

from typing import Any

import pytest
from ill_runs.cpu_ops import decomposed
from perfdoctor.checks.cpu_ops import CHECK
from samples import asked, ids, is_clear, number, step, with_

from perfdoctor.diagnosis.findings import Severity
from perfdoctor.evidence.model import CallSite

examined, found = asked(CHECK)


def test_all_lines_of_the_operator_count_and_the_dearest_is_named() -> None:
    finding = found(decomposed(ms=20.0))
    assert (finding.id, finding.severity) == ("PD10.dear-operator", Severity.NOTE)
    assert finding.location is not None and (finding.location.file, finding.location.line) == ("penalty.py", 12)
    assert number(finding, "cost_ms") == pytest.approx(0.9 * 20.0)
    assert number(finding, "worst_share") == pytest.approx(0.75)
    assert (finding.savings.low_ms, finding.savings.high_ms) == pytest.approx((9.0, 18.0))
    assert "power iteration" in finding.fix.text


@pytest.mark.parametrize(
    ("name", "word"),
    [("linalg_lu_factor_ex", "factor"), ("sort", "topk"), ("_fft_c2c", "rfft"), ("_cdist_forward", "pairs")],
)
def test_each_kind_has_its_own_advice_and_promises_less(name: str, word: str) -> None:
    finding = found(decomposed(name, ms=20.0))
    assert word in finding.fix.text
    assert finding.savings.low_ms == pytest.approx(0.3 * 18.0)


@pytest.mark.parametrize(
    ("changes", "fires"),
    [
        ({}, True),
        ({"ms": 12.7}, True),
        ({"ms": 12.2}, False),
        ({"name": "mm"}, False),
        ({"share": 0.5}, False),
        ({"part": "backward"}, False),
        ({"part": "optimizer"}, False),
    ],
    ids=["two fifths", "a third", "less", "a product", "half of the line", "a library's choice", "PD17's"],
)
def test_it_takes_a_third_of_the_step_in_lines_of_the_jobs_own(changes: dict[str, Any], fires: bool) -> None:
    assert ("PD10.dear-operator" in ids(examined(decomposed(**{"ms": 16.0, **changes})))) is fires


def test_a_line_that_is_told_as_something_else_is_told_once() -> None:
    run = decomposed(ms=20.0)
    reads = tuple(CallSite("scalar_read", line.site, 40.0, 12.0, "forward") for line in run.hot_lines[:2])  # type: ignore[index]
    assert ids(examined(with_(run, call_sites=reads))) == ["PD10.scalar-reads"] * 2


def test_a_step_that_is_too_long_for_it_is_left_alone() -> None:
    run = decomposed(ms=16.0)
    timed = step(with_(run.step.parts, other=30.0))  # type: ignore[union-attr]
    assert is_clear(examined(with_(run, step=timed)))
