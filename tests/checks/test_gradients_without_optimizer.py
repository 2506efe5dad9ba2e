"""Gradients that the backward pass computes for parameters of no optimizer."""

from __future__ import annotations

from typing import Any

import pytest
from ill_runs.communication import MODEL, together
from ill_runs.unused_gradients import BACKBONE_LINE, without_optimizer
from perfdoctor.checks.optimizer import CHECK, examine
from samples import healthy, ids, is_clear, number, only, with_

from perfdoctor.diagnosis.findings import Finding, Severity
from perfdoctor.evidence.model import Evidence, FrozenTiming, Missing, Site, TrainerOption

UNTIMED = Missing("other ranks would have to do the same")


def _found(evidence: Evidence) -> Finding:
    return only(examine(evidence, CHECK.limits))


def test_ranks_that_add_them_up_may_save_what_sending_them_takes() -> None:
    model = with_(MODEL, total_parameter_size_bytes=2 * 4 * 11_000_000)
    alone = _found(without_optimizer())
    ranks = _found(with_(without_optimizer(), communication=together(sending_ms=4.0, model=model)))
    assert ranks.savings.high_ms == pytest.approx(alone.savings.high_ms + 4.0 / 2)
    assert ranks.savings.low_ms == pytest.approx(alone.savings.low_ms) and "add them up" in ranks.reasoning


def test_a_backbone_that_was_never_frozen_is_found_by_what_its_passes_take() -> None:
    finding = _found(without_optimizer())
    assert finding.id == "PD17.gradients-without-optimizer" and finding.severity is Severity.ERROR
    assert finding.location is not None and finding.location.line == BACKBONE_LINE.line
    assert finding.fix.remedies == ("optimizer.freeze-unused",)
    assert (number(finding, "parameters"), number(finding, "of")) == (60, 62)
    # 8 of 20 ms when run again, in passes that take 22 ms in the job.
    assert finding.savings.low_ms == pytest.approx(0.85 * 8.8)
    assert finding.savings.high_ms == pytest.approx(1.25 * 8.8)


def test_at_a_learning_rate_of_zero_the_line_of_the_optimizer_is_named() -> None:
    made_at = Site("train.py", 20, "main")
    held = with_(without_optimizer(held=60), ops__optimizer_at=made_at)
    finding = _found(held)
    assert finding.location is not None and finding.location.line == 20
    assert "learning rate of 0" in finding.reasoning and 'group["lr"]' in (finding.fix.code or "")
    some = _found(with_(held, layers__unused__held=59))
    assert some.location is not None and some.location.line == BACKBONE_LINE.line


@pytest.mark.parametrize(("partly", "line"), [(True, 20), (False, BACKBONE_LINE.line)])
def test_where_the_optimizer_was_given_a_part_of_the_model_its_line_is_named(partly: bool, line: int) -> None:
    seen = with_(without_optimizer(), ops__optimizer_at=Site("train.py", 20, "main"), layers__unused__partly=partly)
    finding = _found(seen)
    assert finding.location is not None and finding.location.line == line


def test_an_attribute_that_freezes_nothing_is_told_where_it_is_set() -> None:
    said = TrainerOption("requires_grad", Site("train.py", 8, "freeze"))
    seen = with_(without_optimizer(), layers__unused__set_on_modules=7, job__options=(said,))
    finding = _found(seen)
    assert finding.location is not None and finding.location.line == 8
    assert number(finding, "set_on_modules") == 7 and "which sets nothing" in finding.reasoning
    plain = _found(with_(seen, layers__unused__set_on_modules=0))
    assert plain.location is not None and plain.location.line == BACKBONE_LINE.line
    assert "sets nothing" not in plain.reasoning


def test_passes_that_were_not_run_again_are_left_out() -> None:
    finding = _found(without_optimizer(FrozenTiming(2.0, 1.0)))
    assert finding.savings.high_ms == pytest.approx(1.25 * 1.5), "of 22 ms of passes at most 3 are these"


@pytest.mark.parametrize(("frozen_ms", "count"), [(20.0, 0), (19.0, 0), (18.5, 1)])
def test_they_count_from_a_twentieth_of_the_step_on(frozen_ms: float, count: int) -> None:
    assert len(ids(examine(without_optimizer(FrozenTiming(20.0, frozen_ms)), CHECK.limits))) == count


def test_untimed_all_of_the_backward_pass_ahead_of_what_learns_is_told_by_layer() -> None:
    finding = _found(without_optimizer(UNTIMED))
    assert finding.savings.low_ms == pytest.approx(0.05 * 6.0 + 0.8 * 10.0)
    assert finding.savings.high_ms == pytest.approx(0.27 * 6.0 + 10.0)
    assert "by layer" in finding.savings.method and "run again" not in finding.reasoning


def test_untimed_a_network_that_the_backward_pass_must_come_through_saves_half_of_it_at_most() -> None:
    finding = _found(without_optimizer(UNTIMED, ahead_forward_ms=0.0, ahead_backward_ms=0.0, behind_backward_ms=10.0))
    assert (finding.savings.low_ms, finding.savings.high_ms) == (pytest.approx(2.0), pytest.approx(5.0))


def test_gradients_of_an_earlier_phase_cost_nothing_now() -> None:
    assert is_clear(examine(without_optimizer(UNTIMED, ahead_forward_ms=8.0, ahead_backward_ms=0.0), CHECK.limits))


@pytest.mark.parametrize(
    "changes",
    [
        {"layers__unused": Missing("the job uses gradients of parameters that are in no optimizer (clip.py:12)")},
        {"layers": Missing("the operator window was not reached")},
    ],
    ids=["somebody reads them", "no layers"],
)
def test_what_is_used_or_was_not_seen_is_no_finding(changes: dict[str, Any]) -> None:
    assert is_clear(examine(with_(without_optimizer(), **changes), CHECK.limits))


def test_a_step_that_no_optimizer_ends_is_none_of_this() -> None:
    assert ids(examine(with_(without_optimizer(), step__boundary="backward"), CHECK.limits)) == []


def test_they_are_told_in_a_job_that_compiles_too() -> None:
    unwatched = with_(without_optimizer(), call_sites=Missing("the job compiles"))
    assert ids(examine(unwatched, CHECK.limits)) == ["PD17.gradients-without-optimizer"]


def test_of_many_modules_three_are_named() -> None:
    named = _found(without_optimizer(modules=tuple("abcde")))
    assert [m.value for m in named.evidence if m.name == "modules"] == ["`a`, `b`, `c` and 2 more"]
    assert is_clear(examine(healthy(), CHECK.limits))
