"""Functions of the loop that compute without torch."""

from __future__ import annotations

from typing import Any

import pytest
from ill_runs.cpu_ops import DRAW_LINE, python_work
from ill_runs.shared_model import pausing
from perfdoctor.checks.cpu_ops import CHECK
from samples import FETCH, LOADER, asked, ids, is_clear, number, with_

from perfdoctor.diagnosis.findings import Severity
from perfdoctor.evidence.model import CallSite, LockWaits, Missing, SameResult, Site

examined, found = asked(CHECK)


def test_the_function_is_told_at_its_dearest_line_with_all_that_its_lines_take() -> None:
    finding = found(python_work(5.0))
    assert (finding.id, finding.severity) == ("PD10.python-work", Severity.NOTE)
    assert finding.location is not None and finding.location.line == DRAW_LINE.line
    assert number(finding, "cost_ms") == pytest.approx(5.0)
    assert number(finding, "worst_share") == pytest.approx(0.8)
    assert (finding.savings.low_ms, finding.savings.high_ms) == pytest.approx((1.5, 5.0))


@pytest.mark.parametrize(("ms", "fires"), [(2.6, False), (3.0, True)])
def test_a_tenth_of_the_step_is_enough(ms: float, fires: bool) -> None:
    assert ("PD10.python-work" in ids(examined(python_work(ms)))) is fires


@pytest.mark.parametrize(
    "changes",
    [{"issued_ms": 4.0}, {"part": "input_wait"}, {"runs_per_step": 0.0}],
    ids=["computes on tensors", "makes batches", "began before the step"],
)
def test_what_is_no_work_of_pythons_is_left_alone(changes: dict[str, Any]) -> None:
    assert is_clear(examined(python_work(**changes)))


@pytest.mark.parametrize(("asleep_ms", "fires"), [(4.0, False), (0.0, True)])
def test_cpu_time_for_batches_is_no_work_of_the_step(asleep_ms: float, fires: bool) -> None:
    """Batches take 5 ms of the training thread's CPU time, as many as the function sleeps, or computes."""
    plain = python_work(asleep_ms=asleep_ms)
    made = with_(FETCH, getitem_ms=4.0, getitem_cpu_ms=4.0, collate_ms=1.0, collate_cpu_ms=1.0, run_delay_ms=0.0)
    own = with_(LOADER, num_workers=0, fetch=made, wait_ms=5.0, empty_share=Missing("no queue"), transport_ms=0.0)
    timed = with_(plain.step, parts=with_(plain.step.parts, input_wait=5.0), step_ms=plain.step.step_ms + 4.7)
    seen = with_(plain, step=with_(timed, cpu_ms=timed.cpu_ms + 5.0), loaders=(own,))
    assert ("PD10.python-work" in ids(examined(seen))) is fires


def test_a_line_that_waits_is_told_as_that() -> None:
    finding = found(python_work(asleep_ms=4.5))
    assert (finding.id, finding.severity) == ("PD10.waiting-line", Severity.NOTE)
    assert finding.location is not None and finding.location.line == DRAW_LINE.line
    assert (finding.savings.low_ms, finding.savings.high_ms) == pytest.approx((2.0, 4.0)), "of its dearest line"


def test_what_computes_and_waits_as_long_is_told_with_both() -> None:
    finding = found(python_work(asleep_ms=2.6))
    assert finding.id == "PD10.python-work" and "a file or a database" in finding.reasoning
    assert "a file or a database" not in found(python_work()).reasoning
    starved = python_work(asleep_ms=2.6)
    assert not isinstance(starved.step, Missing)
    assert is_clear(examined(with_(starved, step=with_(starved.step, run_delay_ms=1.2)))), "it lacked a CPU"


def test_where_it_waits_for_a_thread_that_pauses_that_one_is_told() -> None:
    waits = pausing().lock_waits
    assert is_clear(examined(with_(python_work(asleep_ms=4.5), lock_waits=waits)))


@pytest.mark.parametrize(("all_wait", "told"), [(0.1, False), (0.6, True), (None, True)])
def test_where_other_threads_compute_meanwhile_it_waits_for_them(all_wait: float | None, told: bool) -> None:
    waits = LockWaits(120, 0.7, (), all_wait=all_wait)
    outcome = examined(with_(python_work(asleep_ms=4.5), lock_waits=waits))
    assert ("PD10.waiting-line" in ids(outcome)) is told


def test_a_thread_that_has_no_cpu_does_not_wait_in_a_line() -> None:
    starved = python_work(asleep_ms=4.5)
    assert is_clear(examined(with_(starved, step=with_(starved.step, run_delay_ms=4.5))))


def test_what_lies_before_an_operator_may_be_what_the_line_computes() -> None:
    """A tree of the points, 4 ms, and then the array of a tensor."""
    plain = python_work()
    (own, *others) = plain.hot_lines  # type: ignore[misc]
    late = with_(plain, hot_lines=(with_(own, ms_per_step=4.0, ops_ms=0.05, ops_per_step=2.0), *others))
    assert ids(examined(late)) == ["PD10.python-work"]
    many = with_(plain, hot_lines=(with_(own, ops_ms=0.05, ops_per_step=400.0), *others))
    assert "PD10.python-work" not in ids(examined(many)), "it computes on tensors"


def test_where_lines_were_not_watched_nothing_is_told() -> None:
    assert is_clear(examined(with_(python_work(), code_lines=Missing("the job traces lines itself"))))


def test_what_is_told_by_others_is_not_told_again() -> None:
    plain = python_work(5.0)
    read = CallSite("from_list", DRAW_LINE, 1.0, 4.0, "other")
    assert ids(examined(with_(plain, call_sites=(read,)))) == ["PD10.list-conversion"]
    counted = CallSite("to_list", Site("train.py", 70, "main"), 1.0, 0.1, "other")
    assert is_clear(examined(with_(plain, call_sites=(counted,)))), "metrics are for PD20"
    asked_for = CallSite("program", DRAW_LINE, 1.0, 4.0)
    assert is_clear(examined(with_(plain, programs=(asked_for,)))), "programs are for PD12"


def test_a_function_that_returns_the_same_each_time_is_told_as_that() -> None:
    again = SameResult(
        "draw", Site("train.py", 61, "main"), with_(DRAW_LINE, line=31), "other", 1.0, 1, ms_per_step=5.0
    )
    assert ids(examined(with_(python_work(5.0), same_results=(again,)))) == ["PD10.same-result"]
