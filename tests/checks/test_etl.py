from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from etl_outcomes import examined, found, name_of
from ill_runs.etl import (
    crowding_workers,
    fetch,
    pageable_copies,
    waiting,
    waiting_crowded,
)
from ills import ILL
from perfdoctor.checks.etl import CHECK, examine
from samples import DEVICE_BOUND, LOADER, LOADER_LINE, healthy, ids, is_clear, number, on_gpu, step, with_

from perfdoctor.diagnosis.findings import Location, Part, Severity
from perfdoctor.diagnosis.outcomes import OutcomeKind
from perfdoctor.evidence.model import BatchReplay, Evidence, Missing, Parts

# ---------------------------------------------------------------------------------------------------------
# Cases that were measured: one worker or none, 5 ms of training, two CPUs


MIB = 2**20
MEASURED: dict[str, tuple[Evidence, str]] = {
    "trivial data, no workers": (
        waiting(0.47, fetch((0.01, 0.01), (0.15, 0.15)), num_workers=0),
        "clear",
    ),
    "trivial data, 1 worker: what a hand-over takes at least": (
        waiting(2.0, fetch((0.01, 0.01), (0.5, 0.5)), empty_share=0.0, transport_ms=0.9, transport_bytes=437.0),
        "needless-workers",
    ),
    "latency": (
        waiting(14.6, fetch((19.0, 1.0), (0.6, 0.6)), transport_ms=0.9),
        "too-few-workers",
    ),
    "latency, 4 workers": (
        waiting(1.3, fetch((19.7, 0.8), (0.6, 0.6)), num_workers=4, empty_share=0.0, transport_ms=1.0),
        "clear",
    ),
    "transform on a CPU": (
        waiting(22.3, fetch((25.0, 17.0), (0.7, 0.7), run_delay_ms=8.0), empty_share=0.95, transport_ms=0.9),
        "transform",
    ),
    "slow collate": (
        waiting(10.3, fetch((0.01, 0.01), (15.0, 13.0)), empty_share=0.72, transport_ms=2.6),
        "collate",
    ),
    "256 distinct tensors, cheap to make": (
        waiting(116.0, fetch((0.7, 0.7), (0.0, 0.0)), empty_share=0.0, transport_ms=115.0, transport_bytes=18_000.0),
        "needless-workers",
    ),
    "256 distinct tensors, costly to make": (
        waiting(116.0, fetch((20.0, 20.0), (0.0, 0.0)), empty_share=0.0, transport_ms=115.0, transport_bytes=18_000.0),
        "transport",
    ),
    "the same stacked: 35 times better, and now the worker is slower than the loop": (
        waiting(3.3, fetch((0.7, 0.7), (7.6, 3.8)), empty_share=0.2, transport_ms=1.8),
        "collate",
    ),
    "NumPy arrays of 12.6 MB, cheap to make": (
        waiting(41.7, fetch((1.3, 1.3), (0.0, 0.0)), empty_share=0.0, transport_ms=1.8, transport_bytes=12.6e6),
        "needless-workers",
    ),
    "NumPy arrays of 12.6 MB, costly to make": (
        waiting(41.7, fetch((13.0, 13.0), (0.0, 0.0)), empty_share=0.0, transport_ms=1.8, transport_bytes=12.6e6),
        "transport",
    ),
    "one tensor of 77 MB": (
        waiting(76.0, fetch((0.02, 0.02), (87.0, 52.0), batch_bytes=77e6), transport_ms=10.8),
        "collate",
    ),
}


@pytest.mark.parametrize("case", MEASURED)
def test_the_cause_of_a_measured_case_is_named(case: str) -> None:
    evidence, verdict = MEASURED[case]
    assert name_of(evidence) == verdict


def test_four_workers_for_latency_were_predicted_as_they_turned_out() -> None:
    """With 4 workers the wait fell from 14.6 to 1.3 ms."""
    saved = found(MEASURED["latency"][0]).savings
    assert saved.low_ms <= 14.6 - 1.3 <= saved.high_ms


# ---------------------------------------------------------------------------------------------------------
# The wait itself


def test_a_loader_that_keeps_up_is_clear_with_its_wait_and_no_word_about_workers() -> None:
    outcome = examined(waiting(0.2, fetch((0.1, 0.1), (0.05, 0.05)), train_ms=24.0, num_workers=0))
    assert is_clear(outcome)
    assert number(outcome, "wait_ms") == pytest.approx(0.2)
    assert number(outcome, "workers") == 0


@pytest.mark.parametrize(
    ("wait_ms", "severity"),
    [(0.99, None), (1.01, Severity.NOTE), (2.5, Severity.WARNING), (4.1, Severity.WARNING), (8.0, Severity.ERROR)],
)
def test_severity_follows_the_share_of_the_step_that_a_fix_would_save(
    wait_ms: float, severity: Severity | None
) -> None:
    made = fetch((0.0, 0.0), (wait_ms, wait_ms))
    outcome = examined(waiting(wait_ms, made, train_ms=20.0 - wait_ms, num_workers=0, collate="stacked"))
    assert [finding.severity for finding in outcome.findings] == ([severity] if severity else [])


def test_a_wait_of_microseconds_is_bookkeeping_however_short_the_step() -> None:
    evidence = waiting(0.04, fetch((0.01, 0.01), (0.02, 0.02)), train_ms=0.3, num_workers=0)
    assert is_clear(examined(evidence))


def test_thresholds_come_from_the_limits() -> None:
    lenient = replace(CHECK.limits, min_share=0.9)
    assert is_clear(examine(ILL["PD03.too-few-workers"], lenient))


def test_the_finding_points_at_the_loader_and_bills_the_wait() -> None:
    finding = found(ILL["PD03.too-few-workers"])
    assert finding.location == Location(LOADER_LINE.file, LOADER_LINE.line, LOADER_LINE.function)
    assert finding.savings.part is Part.INPUT_WAIT
    assert finding.savings.ceiling_ms == pytest.approx(20.0)


def test_a_loader_that_no_line_made_has_no_location() -> None:
    assert found(with_(ILL["PD03.storage"], loader__site=Missing("no line of the job"))).location is None


def test_the_loader_waited_for_longest_is_blamed() -> None:
    slow = ILL["PD03.collate"]
    both = with_(slow, loaders=(*slow.loaders, with_(LOADER, dataset="Others")))  # type: ignore[misc]
    assert ids(examined(both)) == ["PD03.collate"]


@pytest.mark.parametrize("part", ["step", "loaders"])
def test_without_steps_or_loaders_nothing_is_claimed(part: str) -> None:
    outcome = examined(with_(healthy(), **{part: Missing("it was not seen")}))
    assert outcome.kind is OutcomeKind.CANNOT_TELL
    assert "it was not seen" in outcome.reason


def test_a_loop_without_a_loader_that_only_computes_is_not_applicable() -> None:
    assert examined(with_(healthy(), loaders=())).kind is OutcomeKind.NOT_APPLICABLE


def test_a_loop_without_a_loader_that_does_something_else_too_cannot_be_told() -> None:
    evidence = with_(healthy(), loaders=(), step=step(Parts(forward=5.0, backward=5.0, other=4.0)))
    assert examined(evidence).kind is OutcomeKind.CANNOT_TELL


# ---------------------------------------------------------------------------------------------------------
# On a GPU


def _on_gpu(wait_ms: float, device_busy_ms: float | None) -> Evidence:
    cpu = waiting(wait_ms, fetch((25.0, 25.0)), train_ms=20.0)
    return on_gpu(with_(cpu, ops=healthy().ops), ops__device_busy_ms=device_busy_ms)


def test_a_wait_behind_queued_kernels_costs_nothing() -> None:
    assert is_clear(examined(_on_gpu(10.0, device_busy_ms=29.5)))


def test_of_a_wait_only_what_leaves_the_device_idle_counts() -> None:
    assert found(_on_gpu(10.0, device_busy_ms=24.0)).savings.ceiling_ms == pytest.approx(6.0)
    assert found(_on_gpu(10.0, device_busy_ms=5.0)).savings.ceiling_ms == pytest.approx(10.0)


def test_without_device_times_the_whole_wait_counts() -> None:
    assert found(_on_gpu(10.0, device_busy_ms=None)).savings.ceiling_ms == pytest.approx(10.0)


def test_a_wait_that_the_device_does_not_feel_costs_nothing() -> None:
    assert is_clear(examined(with_(_on_gpu(10.0, device_busy_ms=None), device=DEVICE_BOUND)))


@pytest.mark.parametrize(("idle_ms", "busy_ms", "ceiling"), [(6.0, None, 6.0), (6.0, 26.0, 4.0), (30.0, None, 10.0)])
def test_a_wait_costs_at_most_what_the_device_lacks_work(idle_ms: float, busy_ms: float | None, ceiling: float) -> None:
    timeline = replace(DEVICE_BOUND, idle_most_ms=idle_ms)
    finding = found(with_(_on_gpu(10.0, device_busy_ms=busy_ms), device=timeline))
    assert finding.savings.ceiling_ms == pytest.approx(ceiling)
    assert finding.savings.high_ms <= ceiling


def test_on_a_cpu_kernels_in_a_profile_hide_no_wait() -> None:
    cpu = waiting(10.0, fetch((25.0, 25.0)), train_ms=20.0)
    assert found(with_(cpu, ops=replace(healthy().ops, device_busy_ms=29.5))).savings.ceiling_ms == pytest.approx(10)


def test_pageable_copies_are_found_by_their_time() -> None:
    finding = found(ILL["PD03.pageable-copies"])
    assert finding.id == "PD03.pageable-copies"
    assert finding.location is not None
    assert finding.savings.part is Part.OTHER
    assert "pin_memory=True" in finding.fix.code


def test_pinned_or_short_copies_are_fine() -> None:
    assert is_clear(examined(pageable_copies(1.2)))
    assert is_clear(examined(on_gpu(ops__device_copies_ms=10.0)))


def test_copies_are_judged_on_a_device_only() -> None:
    assert is_clear(examined(with_(healthy(), ops__pageable_copies_ms=10.0)))


def test_a_wait_and_copies_are_two_findings() -> None:
    evidence = with_(_on_gpu(10.0, device_busy_ms=5.0), ops__pageable_copies_ms=5.0)
    assert ids(examined(evidence)) == ["PD03.transform", "PD03.pageable-copies"]


def test_a_cheaper_batch_gives_training_its_cpus_back() -> None:
    finding, quiet = found(waiting_crowded()), found(waiting_crowded(step__run_delay_ms=0.0))
    assert finding.id == quiet.id == "PD03.transform"
    assert number(finding, "crowded_ms") == pytest.approx(20.0)
    assert finding.savings.low_ms == pytest.approx(quiet.savings.low_ms + 0.25 * 20.0)
    assert finding.savings.high_ms == pytest.approx(quiet.savings.high_ms + 0.9 * 20.0)


def test_what_passes_take_alone_bounds_what_workers_cost_them() -> None:
    ops = healthy().ops
    assert not isinstance(ops, Missing)
    replayed = with_(ops, steps=2, batch_replay=BatchReplay(32, ((1, 30.0), (2, 60.0))))
    finding, shorter = found(waiting_crowded(ops=replayed)), found(waiting_crowded())
    assert finding.savings.high_ms - shorter.savings.high_ms == pytest.approx(0.9 * (45.0 - 15.0 - 20.0))
    assert finding.savings.low_ms == shorter.savings.low_ms


@pytest.mark.parametrize(
    "changes",
    [
        {"threads__intra_op": 4},
        {"host__others_cpus": 1.5, "host__idle_cpus": 0.0, "host__job_cpus": 0.5},
        {"step__run_delay_ms": 2.0},
        {"step__run_delay_ms": Missing("no schedstat")},
    ],
)
def test_cpus_that_others_have_or_that_lack_without_workers_too_are_not_given_back(changes: dict[str, object]) -> None:
    told = [f for f in examined(waiting_crowded(**changes)).findings if f.id == "PD03.transform"]
    assert told and all(evidence.name != "crowded_ms" for finding in told for evidence in finding.evidence)


def test_workers_that_keep_up_cost_the_cpus_that_they_take() -> None:
    finding = found(crowding_workers())
    assert finding.id == "PD03.crowded-training" and finding.severity is Severity.ERROR
    assert number(finding, "crowded_ms") == pytest.approx(20.0)
    assert (finding.savings.low_ms, finding.savings.high_ms) == (pytest.approx(5.0), pytest.approx(18.0))
    assert finding.savings.part is Part.COMPUTE and "__getitem__" not in finding.message


def test_what_workers_take_from_training_may_be_more_than_receiving_their_batches_takes() -> None:
    sending: dict[str, Any] = {"num_workers": 1, "empty_share": 0.0, "transport_ms": 3.4, "transport_bytes": 385_000.0}
    made = fetch((45.0, 36.0), (0.6, 0.6), run_delay_ms=9.0)
    evidence = waiting_crowded(3.6, loaders=(with_(LOADER, wait_ms=3.6, fetch=made, **sending),))
    assert found(evidence).id == "PD03.crowded-training"
    alone = with_(evidence, step__run_delay_ms=0.0)
    assert [finding.id for finding in examined(alone).findings] == ["PD03.transport"]


@pytest.mark.parametrize(("cpu_ms", "count"), [(14.0, 0), (21.0, 1)])
def test_workers_that_are_busy_for_a_third_of_the_step_are_an_opportunity(cpu_ms: float, count: int) -> None:
    """Where they have a CPU for as long as training, which waits 20 ms for one."""
    some = crowding_workers(loaders=(with_(LOADER, num_workers=1, fetch=fetch((cpu_ms, cpu_ms))),))
    findings = examined(some).findings
    assert [finding.severity for finding in findings] == [Severity.NOTE] * count


@pytest.mark.parametrize(
    "changes",
    [
        {"threads__intra_op": 4},
        {"step__run_delay_ms": 2.0},
        {"host__others_cpus": 1.5, "host__idle_cpus": 0.0, "host__job_cpus": 0.5},
        {"loaders": (with_(LOADER, num_workers=1, fetch=fetch((10.0, 8.0))),)},
    ],
)
def test_cpus_that_workers_do_not_take_are_not_theirs(changes: dict[str, object]) -> None:
    assert is_clear(examined(crowding_workers(**changes)))
