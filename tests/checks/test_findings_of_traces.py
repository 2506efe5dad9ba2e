"""What checks say of a trace: ceilings, and only where the device feels it."""

from __future__ import annotations

from typing import Any

import pytest
from ill_runs.traced import AT, LOOP, ONE_RANK, TALK, traced
from samples import with_

from perfdoctor.diagnosis.findings import Finding
from perfdoctor.diagnosis.outcomes import Check, Outcome, OutcomeKind
from perfdoctor.diagnosis.registry import discover
from perfdoctor.evidence.model import CopyUse, Evidence, Idle, LateRank, Missing, Products

CHECKS: dict[str, Check[Any]] = {entry.check.code: entry.check for entry in discover()}
ON_DEVICE = ("PD02", "PD03", "PD07", "PD08", "PD09", "PD10", "PD17", "PD19")


def outcome(code: str, evidence: Evidence) -> Outcome:
    return CHECKS[code].examine(evidence, CHECKS[code].limits)


def only(code: str, evidence: Evidence) -> Finding:
    (finding,) = outcome(code, evidence).findings
    return finding


@pytest.mark.parametrize("code", ON_DEVICE)
def test_a_device_that_is_busy_is_no_reason_for_alarm(code: str) -> None:
    seen = outcome(code, traced())
    assert seen.kind in (OutcomeKind.CLEAR, OutcomeKind.NOT_APPLICABLE)


@pytest.mark.parametrize("code", [code for code in CHECKS if code not in ON_DEVICE])
def test_what_a_trace_does_not_hold_is_not_called_clear(code: str) -> None:
    assert outcome(code, traced()).kind in (OutcomeKind.CANNOT_TELL, OutcomeKind.NOT_APPLICABLE)


def test_a_wait_for_data_counts_as_far_as_the_device_idles() -> None:
    finding = only("PD03", traced({Idle.INPUT: 33.0}, step__parts__input_wait=39.0, activity__input_ms=39.0))
    assert finding.savings.high_ms == 33.0
    assert finding.savings.low_ms == 0
    assert finding.savings.ceiling_only
    assert finding.location is not None
    assert (finding.location.file, finding.location.line) == (AT.file, AT.line)


def test_a_wait_that_queued_work_hides_is_clear() -> None:
    assert outcome("PD03", traced(activity__input_ms=39.0)).kind is OutcomeKind.CLEAR


@pytest.mark.parametrize(("workers", "word"), [(False, "no workers"), (True, "do not keep up"), (Missing("?"), "if")])
def test_the_advice_follows_what_the_trace_says_of_workers(workers: bool | Missing, word: str) -> None:
    assert word in only("PD03", traced({Idle.INPUT: 33.0}, activity__workers=workers)).fix.text


def test_without_a_device_the_hosts_wait_is_told() -> None:
    evidence = with_(traced({Idle.INPUT: 33.0}), activity=Missing("no device was recorded"))
    assert only("PD03", evidence).savings.high_ms == 33.0


def test_pageable_copies_count_where_nothing_else_runs() -> None:
    hidden = CopyUse(ms=20.0, exposed_ms=1.0, pageable_ms=20.0, pageable_exposed_ms=1.0, bytes=1e8)
    assert outcome("PD03", traced(activity__copies=hidden)).kind is OutcomeKind.CLEAR
    finding = only("PD03", traced(activity__copies=with_(hidden, pageable_exposed_ms=12.0)))
    assert finding.id == "PD03.pageable-copies"
    assert finding.savings.high_ms == 12.0


def test_float32_products_matter_only_where_the_device_bounds_the_step() -> None:
    products = {"activity__products": (Products("float32", 60.0),), "activity__products_ms": 60.0}
    finding = only("PD07", traced(**products))
    assert finding.id == "PD07.tensor-cores-unused"
    assert finding.savings.high_ms == pytest.approx(60 * (1 - 19.5 / 156))
    assert outcome("PD07", traced({Idle.INPUT: 40.0}, **products)).kind is OutcomeKind.CLEAR
    assert outcome("PD07", traced(activity__peaks=Missing("?"), **products)).kind is OutcomeKind.CLEAR


def test_layout_kernels_matter_only_where_the_device_bounds_the_step() -> None:
    assert outcome("PD02", traced({Idle.ALLOCATOR: 60.0}, activity__layouts_ms=12.0)).kind is OutcomeKind.CLEAR


def test_exposed_communication_of_one_rank_has_an_amount_and_no_reason() -> None:
    finding = only("PD19", traced(activity__collectives=TALK))
    assert finding.savings.high_ms == 15.0
    assert ONE_RANK.reason in finding.reasoning
    assert "compress" not in finding.fix.text


def test_with_all_ranks_waiting_is_told_from_sending() -> None:
    waits = only("PD19", traced(activity__collectives=with_(TALK, transport_ms=1.0, waiting_ms=19.0)))
    assert "waiting for other ranks" in waits.message
    assert "Send less" not in waits.fix.text
    sends = only("PD19", traced(activity__collectives=with_(TALK, transport_ms=18.0, waiting_ms=2.0)))
    assert "most of it sending" in sends.message
    assert "Send less" in sends.fix.text


def test_communication_behind_computing_is_clear() -> None:
    assert outcome("PD19", traced(activity__collectives=with_(TALK, exposed_ms=2.0))).kind is OutcomeKind.CLEAR


def test_a_synchronisation_counts_where_the_queue_runs_dry() -> None:
    assert only("PD10", traced({Idle.SYNC: 10.0})).id == "PD10.device-sync"
    assert outcome("PD10", traced(activity__syncs__ms=80.0)).kind is OutcomeKind.CLEAR


def test_launching_too_late_is_a_direction_without_a_size() -> None:
    finding = only("PD10", traced({Idle.LAUNCHING: 30.0}))
    assert finding.is_opportunity
    assert finding.savings.high_ms == 0


def test_an_update_in_groups_is_no_loop() -> None:
    grouped = with_(LOOP, listed=470.0)
    assert outcome("PD17", traced({Idle.OPTIMIZER: 8.0}, activity__optimizer=grouped)).kind is OutcomeKind.CLEAR


def test_a_rank_that_is_always_late_is_the_finding() -> None:
    late = with_(TALK, transport_ms=1.0, waiting_ms=19.0, late=LateRank(rank=3, ms=14.0, share=1.0))
    finding = only("PD19", traced(activity__collectives=late))
    assert finding.id == "PD19.late-rank"
    assert {m.name: m.value for m in finding.evidence}["rank"] == 3
    assert finding.savings.high_ms == 14.0
