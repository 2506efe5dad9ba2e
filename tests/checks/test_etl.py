from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ill_runs.etl import (
    UNEVEN_MS,
    collecting_workers,
    fetch,
    pageable_copies,
    restarted_workers,
    uneven_batches,
    waiting,
)
from ills import ILL
from perfdoctor.checks.etl import CHECK, examine
from samples import DEVICE_BOUND, LOADER, LOADER_LINE, healthy, ids, is_clear, number, on_gpu, only, step, with_

from perfdoctor.diagnosis.findings import Confidence, Finding, Location, Outcome, OutcomeKind, Part, Severity
from perfdoctor.evidence.model import CodeLine, Evidence, Missing, Parts, Site

LIMITS = CHECK.limits


def _examined(evidence: Evidence) -> Outcome:
    return examine(evidence, LIMITS)


def _found(evidence: Evidence) -> Finding:
    return only(_examined(evidence))


def _name(evidence: Evidence) -> str:
    """The finding's name, or the outcome's kind without one."""
    outcome = _examined(evidence)
    return only(outcome).id.partition(".")[2] if outcome.findings else outcome.kind.value


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
    assert _name(evidence) == verdict


def test_four_workers_for_latency_were_predicted_as_they_turned_out() -> None:
    """With 4 workers the wait fell from 14.6 to 1.3 ms."""
    saved = _found(MEASURED["latency"][0]).savings
    assert saved.low_ms <= 14.6 - 1.3 <= saved.high_ms


# ---------------------------------------------------------------------------------------------------------
# The wait itself


def test_a_loader_that_keeps_up_is_clear_with_its_wait_and_no_word_about_workers() -> None:
    outcome = _examined(waiting(0.2, fetch((0.1, 0.1), (0.05, 0.05)), train_ms=24.0, num_workers=0))
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
    made = fetch((wait_ms, wait_ms), (0.0, 0.0))
    outcome = _examined(waiting(wait_ms, made, train_ms=20.0 - wait_ms, num_workers=0, batch_size=8))
    assert [finding.severity for finding in outcome.findings] == ([severity] if severity else [])


def test_a_wait_of_microseconds_is_bookkeeping_however_short_the_step() -> None:
    evidence = waiting(0.04, fetch((0.01, 0.01), (0.02, 0.02)), train_ms=0.3, num_workers=0)
    assert is_clear(_examined(evidence))


def test_thresholds_come_from_the_limits() -> None:
    lenient = replace(LIMITS, min_share=0.9)
    assert is_clear(examine(ILL["PD03.too-few-workers"], lenient))


def test_the_finding_points_at_the_loader_and_bills_the_wait() -> None:
    finding = _found(ILL["PD03.too-few-workers"])
    assert finding.location == Location(LOADER_LINE.file, LOADER_LINE.line, LOADER_LINE.function)
    assert finding.savings.part is Part.INPUT_WAIT
    assert finding.savings.ceiling_ms == pytest.approx(20.0)


def test_a_loader_that_no_line_made_has_no_location() -> None:
    assert _found(with_(ILL["PD03.storage"], loader__site=Missing("no line of the job"))).location is None


def test_the_loader_waited_for_longest_is_blamed() -> None:
    slow = ILL["PD03.collate"]
    both = with_(slow, loaders=(*slow.loaders, with_(LOADER, dataset="Others")))  # type: ignore[misc]
    assert ids(_examined(both)) == ["PD03.collate"]


@pytest.mark.parametrize("part", ["step", "loaders"])
def test_without_steps_or_loaders_nothing_is_claimed(part: str) -> None:
    outcome = _examined(with_(healthy(), **{part: Missing("it was not seen")}))
    assert outcome.kind is OutcomeKind.CANNOT_TELL
    assert "it was not seen" in outcome.reason


def test_a_loop_without_a_loader_that_only_computes_is_not_applicable() -> None:
    assert _examined(with_(healthy(), loaders=())).kind is OutcomeKind.NOT_APPLICABLE


def test_a_loop_without_a_loader_that_does_something_else_too_cannot_be_told() -> None:
    evidence = with_(healthy(), loaders=(), step=step(Parts(forward=5.0, backward=5.0, other=4.0)))
    assert _examined(evidence).kind is OutcomeKind.CANNOT_TELL


# ---------------------------------------------------------------------------------------------------------
# Too few workers, or a batch that is too costly


def test_no_workers_and_a_slow_data_set_ask_for_as_many_as_keep_up() -> None:
    finding = _found(ILL["PD03.too-few-workers"])
    assert finding.id == "PD03.too-few-workers"
    assert number(finding, "wanted") == 3  # 19.5 ms of mostly waiting, against 10 ms of training, and a fifth more
    assert "num_workers=3" in finding.fix.code
    assert "in the training process" in finding.message
    assert 10.0 < finding.savings.low_ms < finding.savings.high_ms < 20.0


def test_the_fix_speaks_the_language_of_the_trainer() -> None:
    evidence = with_(ILL["PD03.too-few-workers"], job__trainer="transformers")
    assert "dataloader_num_workers=3" in _found(evidence).fix.code


def test_workers_that_cannot_keep_up_get_company_where_there_are_cpus() -> None:
    costly = fetch((25.0, 25.0), (0.7, 0.7))
    assert _name(waiting(20.7, costly, cpus=8)) == "too-few-workers"
    assert _name(waiting(20.7, costly, cpus=2)) == "transform"


def test_waiting_for_storage_needs_no_cpus() -> None:
    blocked = fetch((25.0, 0.5), (0.2, 0.2))
    assert _name(waiting(20.7, blocked, cpus=2)) == "too-few-workers"


def test_storage_is_blamed_when_sixteen_workers_do_not_hide_it() -> None:
    finding = _found(ILL["PD03.storage"])
    assert finding.id == "PD03.storage"
    assert finding.confidence is Confidence.MEDIUM
    assert "storage" in finding.message


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (fetch((30.0, 29.0), (2.0, 2.0)), "transform"),
        (fetch((2.0, 2.0), (30.0, 29.0)), "collate"),
    ],
)
def test_the_larger_half_of_making_a_batch_is_named(made: Any, name: str) -> None:
    finding = _found(waiting(27.0, made))
    assert finding.id == f"PD03.{name}"
    assert finding.savings.high_ms < 27.0


def test_many_cheap_samples_ask_for_indexing_in_one_go() -> None:
    finding = _found(ILL["PD03.per-sample-indexing"])
    assert finding.id == "PD03.per-sample-indexing"
    assert number(finding, "sample_us") == pytest.approx(1200 / 256)
    assert "BatchSampler" in finding.fix.code


def test_a_collate_function_of_the_jobs_own_that_takes_the_time_is_the_cause() -> None:
    """Tokenising 64 sentences in it takes 3.6 ms, picking them 0.04."""
    line = CodeLine(Site("data.py", 7, "tokenise"), "input_wait", True, 0.0, 0.6)
    made = fetch((0.04, 0.03), (3.6, 3.6), lines=(line,))
    cheap = {"train_ms": 16.0, "num_workers": 0, "batch_size": 64}
    finding = _found(waiting(3.7, made, collate="tokenised", **cheap))
    assert finding.id == "PD03.collate"
    assert finding.location == Location("data.py", 7, "tokenise")
    assert _name(waiting(3.7, made, collate="default_collate", **cheap)) == "per-sample-indexing"
    assert _name(waiting(3.7, made, **cheap)) == "per-sample-indexing"


def test_workers_are_not_advised_where_handing_over_costs_what_making_does() -> None:
    """Two workers on trivial data made a loop run at half its speed."""
    assert _name(waiting(1.9, fetch((1.2, 1.2), (0.6, 0.6)), num_workers=0, batch_size=256)) == "per-sample-indexing"


@pytest.mark.parametrize(
    ("wait_ms", "severity"), [(0.9, None), (1.9, Severity.NOTE), (2.2, Severity.WARNING), (8.0, Severity.ERROR)]
)
def test_the_ordinary_way_to_use_tensors_is_a_note_at_first(wait_ms: float, severity: Severity | None) -> None:
    cheap = fetch((0.6 * wait_ms, 0.6 * wait_ms), (0.3 * wait_ms, 0.3 * wait_ms))
    outcome = _examined(waiting(wait_ms, cheap, train_ms=20.0 - wait_ms, num_workers=0, batch_size=256))
    assert [finding.severity for finding in outcome.findings] == ([severity] if severity else [])


def test_why_workers_would_not_help_depends_on_what_a_batch_takes() -> None:
    cheap = waiting(0.9, fetch((0.9, 0.9), (0.0, 0.0)), num_workers=0, batch_size=1)
    assert "handing batches over" in _found(cheap).reasoning
    assert "more workers would not keep up" in _found(ILL["PD03.transform"]).reasoning


def test_only_the_making_is_billed_when_the_loader_itself_takes_longer() -> None:
    finding = _found(waiting(0.6, fetch((0.1, 0.1), (0.1, 0.1)), train_ms=1.0, num_workers=0, batch_size=256))
    assert finding.id == "PD03.per-sample-indexing"
    assert finding.savings.ceiling_ms == pytest.approx(0.2)


def test_a_wait_that_is_not_the_making_is_not_blamed_on_the_data_set() -> None:
    finding = _found(waiting(4.0, fetch((0.1, 0.1), (0.1, 0.1)), num_workers=0))
    assert finding.id == "PD03.input-wait"
    assert finding.confidence is Confidence.LOW
    assert "sampler" in finding.reasoning


def test_quick_workers_and_an_empty_queue_are_not_blamed_on_the_data_set() -> None:
    """A batch takes 0.5 ms to make and is waited for 10: a few slow ones, or a sampler."""
    finding = _found(waiting(10.0, fetch(), empty_share=0.9))
    assert finding.id == "PD03.input-wait"
    assert finding.confidence is Confidence.LOW


def test_an_unseen_worker_leaves_the_cause_open_and_promises_nothing() -> None:
    finding = _found(ILL["PD03.input-wait"])
    assert finding.id == "PD03.input-wait"
    assert finding.confidence is Confidence.LOW
    assert (finding.savings.low_ms, finding.savings.high_ms) == (0.0, 10.0)
    assert "{{0}}" in finding.reasoning  # braces of a reason are no placeholders


# ---------------------------------------------------------------------------------------------------------
# No CPU left


def test_making_a_batch_without_a_cpu_is_not_a_slow_transform() -> None:
    finding = _found(with_(ILL["PD03.no-cpu-left"], host__others_cpus=1.6))
    assert finding.id == "PD03.no-cpu-left"
    assert number(finding, "others") == pytest.approx(1.6)
    assert finding.savings.high_ms == pytest.approx(30.0 * 21.0 / 25.5)


@pytest.mark.parametrize(("delay_ms", "name"), [(10.0, "transform"), (10.4, "no-cpu-left")])
def test_run_delay_takes_the_blame_from_two_fifths_on(delay_ms: float, name: str) -> None:
    made = fetch((25.0, 25.0 - delay_ms), (0.7, 0.7), run_delay_ms=delay_ms)
    assert _examined(waiting(20.0, made)).findings[0].id == f"PD03.{name}"


def test_what_stays_on_a_quiet_machine_is_a_cause_beside_the_neighbours() -> None:
    """Of 25.7 ms a batch 10.4 wait for a CPU: one worker that got them would still need 15.3 beside training of 5."""
    evidence = waiting(20.0, fetch((25.0, 14.6), (0.7, 0.7), run_delay_ms=10.4))
    lack, own = _examined(evidence).findings
    assert (lack.id, own.id) == ("PD03.no-cpu-left", "PD03.transform")
    assert "on a quiet machine" in own.reasoning
    assert number(own, "wait_ms") == pytest.approx(9.6)
    # The wait is billed once.
    assert lack.savings.ceiling_ms == pytest.approx(20.0 - 9.6)
    assert lack.savings.high_ms <= lack.savings.ceiling_ms
    assert own.savings.ceiling_ms == pytest.approx(9.6)
    assert own.savings.share == pytest.approx(9.6 / 25.0)


def test_a_loader_that_would_keep_up_on_a_quiet_machine_has_no_cause_of_its_own() -> None:
    assert ids(_examined(waiting(20.0, fetch((24.0, 4.0), (0.7, 0.7), run_delay_ms=20.0)))) == ["PD03.no-cpu-left"]


@pytest.mark.parametrize(
    ("changes", "text", "remedy"),
    [
        ({}, "wait for each other", "fewer OpenMP threads"),
        ({"host__others_cpus": 1.0, "host__idle_cpus": 0.0}, "other processes take", "the other processes"),
        ({"host__throttled_share": 0.6}, "quota", "a larger quota"),
        ({"host": Missing("no samples")}, "not known", "Free CPUs"),
        ({"loader__num_workers": 2, "loader__worker_threads__affinity_cpus": 1}, "bound to fewer CPUs", "fewer OpenMP"),
    ],
)
def test_who_had_the_cpu_is_said(changes: dict[str, Any], text: str, remedy: str) -> None:
    finding = _found(with_(ILL["PD03.no-cpu-left"], **changes))
    assert finding.id == "PD03.no-cpu-left"
    assert text in finding.reasoning
    assert remedy in finding.fix.text


def test_without_the_monitor_no_number_of_neighbours_is_shown() -> None:
    finding = _found(with_(ILL["PD03.no-cpu-left"], host=Missing("no samples")))
    assert "others" not in [m.name for m in finding.evidence]


# ---------------------------------------------------------------------------------------------------------
# Transport


@pytest.mark.parametrize(("empty", "name"), [(0.31, "transform"), (0.29, "transport")])
def test_batches_that_were_ready_are_slow_to_hand_over_not_to_make(empty: float, name: str) -> None:
    assert _name(waiting(40.0, fetch((20.0, 20.0)), empty_share=empty, transport_ms=38.0)) == name


def test_needless_workers_save_the_wait_less_the_making() -> None:
    finding = _found(ILL["PD03.needless-workers"])
    assert finding.id == "PD03.needless-workers"
    assert "num_workers=0" in finding.fix.code
    # Collating takes 0.5 ms in a worker, and as little as 30 % of it where no memory has to be shared.
    assert finding.savings.low_ms == pytest.approx(2.0 - 0.51)
    assert finding.savings.high_ms == pytest.approx(2.0 - 0.01 - 0.15)


def test_what_any_hand_over_takes_is_no_finding() -> None:
    made = fetch((20.0, 20.0))
    assert is_clear(_examined(waiting(1.9, made, empty_share=0.0, num_workers=8, cpus=16)))
    assert _name(waiting(2.1, made, empty_share=0.0, num_workers=8, cpus=16)) == "transport"


def test_a_large_batch_promises_little() -> None:
    """64 MiB are 6 to 32 ms of touching shared memory, which no other `collate_fn` avoids."""
    made = fetch((40.0, 40.0), batch_bytes=64.0 * MIB)
    saved = _found(waiting(20.0, made, empty_share=0.0, num_workers=8, cpus=16)).savings
    assert saved.low_ms == 0.0
    assert saved.high_ms == pytest.approx(20.0 - 6.7)


def test_workers_slower_than_the_loop_are_no_matter_of_transport() -> None:
    made = fetch((20.0, 20.0))
    assert _name(waiting(15.5, made, empty_share=0.0, cpus=8)) == "too-few-workers"
    assert _name(waiting(15.5, made, empty_share=0.0, cpus=2)) == "transform"


# ---------------------------------------------------------------------------------------------------------
# Iterators and epochs


def test_an_iterator_for_each_batch_is_named_before_all_other_causes() -> None:
    finding = _found(ILL["PD03.iterator-rebuilt"])
    assert finding.id == "PD03.iterator-rebuilt"
    assert finding.severity is Severity.ERROR
    assert finding.location == Location("train.py", 41, "main")  # where it is built, not where the loader is
    made = fetch().total_ms
    assert finding.savings.high_ms == pytest.approx(57.0 - made)  # the batch itself must still be made
    assert finding.savings.low_ms == pytest.approx(0.9 * (57.0 - made))
    with_workers = waiting(90.0, fetch(), iterators=200, iterator_start_ms=90.0, batches_per_iterator=1.0)
    assert _name(with_(with_workers, loader__persistent_workers=False)) == "iterator-rebuilt"


@pytest.mark.parametrize(("iterators", "batches"), [(200, 1.6), (2, 1.0)])
def test_short_epochs_are_not_rebuilt_iterators(iterators: int, batches: float) -> None:
    evidence = with_(ILL["PD03.iterator-rebuilt"], loader__iterators=iterators, loader__batches_per_iterator=batches)
    assert "iterator-rebuilt" not in _name(evidence)


def test_restarted_workers_cost_beside_the_steady_step() -> None:
    finding = _found(ILL["PD03.workers-restarted"])
    assert finding.id == "PD03.workers-restarted"
    assert finding.savings.part is Part.EPOCH
    assert finding.savings.ceiling_ms == pytest.approx((100.0 - 0.3) / 10)
    assert "persistent_workers=True" in finding.fix.code


def test_restarted_workers_of_short_epochs_are_in_the_wait_and_billed_there() -> None:
    """With three batches an epoch every third step starts one: that is how this loop steps."""
    slow_start = restarted_workers(start_ms=60.0, epoch=3.0, irregular_ms=0.0)
    evidence = with_(slow_start, step=step(Parts(input_wait=20.0, forward=8.0, backward=14.0, optimizer=2.0)))
    finding = _found(evidence)  # and no second finding for the same wait
    assert finding.id == "PD03.workers-restarted"
    assert finding.savings.part is Part.INPUT_WAIT
    assert finding.savings.ceiling_ms == pytest.approx((60.0 - 0.3) / 3)


@pytest.mark.parametrize(
    "changes",
    [
        {"loader__persistent_workers": True},
        {"loader__num_workers": 0},
        {"loader__iterators": 1},
        {"loader__batches_per_iterator": 100.0},  # 1 ms a step
    ],
)
def test_workers_that_stay_or_start_rarely_are_fine(changes: dict[str, Any]) -> None:
    assert is_clear(_examined(with_(ILL["PD03.workers-restarted"], **changes)))


@pytest.mark.parametrize(("epoch", "count"), [(78.0, 1), (82.0, 0)])
def test_restarts_count_from_five_per_cent_on(epoch: float, count: int) -> None:
    assert len(_examined(restarted_workers(start_ms=100.3, epoch=epoch)).findings) == count


# ---------------------------------------------------------------------------------------------------------
# On a GPU


def test_collections_that_a_line_in_the_workers_asks_for_are_named_with_it() -> None:
    finding = only(examine(collecting_workers(), CHECK.limits))
    assert (finding.id, finding.location.line if finding.location else 0) == ("PD03.worker-collections", 31)
    # Two workers share 30 ms of collections, so a step waits 15 less, all of its wait.
    assert finding.savings.high_ms == pytest.approx(15.0)
    assert finding.savings.low_ms == pytest.approx(0.85 * 15.0 * 30 / 40)


def test_pythons_own_collections_in_workers_point_at_the_loader() -> None:
    finding = only(examine(collecting_workers(line=None), CHECK.limits))
    assert "gc.freeze()" in finding.fix.code
    assert finding.location is not None
    assert finding.savings.high_ms == pytest.approx(0.95 * 15.0)


def test_few_collections_in_workers_are_not_to_blame() -> None:
    assert ids(examine(collecting_workers(gc_ms=8.0), CHECK.limits)) != ["PD03.worker-collections"]


def _on_gpu(wait_ms: float, device_busy_ms: float | None) -> Evidence:
    cpu = waiting(wait_ms, fetch((25.0, 25.0)), train_ms=20.0)
    return on_gpu(with_(cpu, ops=healthy().ops), ops__device_busy_ms=device_busy_ms)


def test_a_wait_behind_queued_kernels_costs_nothing() -> None:
    assert is_clear(_examined(_on_gpu(10.0, device_busy_ms=29.5)))


def test_of_a_wait_only_what_leaves_the_device_idle_counts() -> None:
    assert _found(_on_gpu(10.0, device_busy_ms=24.0)).savings.ceiling_ms == pytest.approx(6.0)
    assert _found(_on_gpu(10.0, device_busy_ms=5.0)).savings.ceiling_ms == pytest.approx(10.0)


def test_without_device_times_the_whole_wait_counts() -> None:
    assert _found(_on_gpu(10.0, device_busy_ms=None)).savings.ceiling_ms == pytest.approx(10.0)


def test_a_wait_that_the_device_does_not_feel_costs_nothing() -> None:
    assert is_clear(_examined(with_(_on_gpu(10.0, device_busy_ms=None), device=DEVICE_BOUND)))


@pytest.mark.parametrize(("idle_ms", "busy_ms", "ceiling"), [(6.0, None, 6.0), (6.0, 26.0, 4.0), (30.0, None, 10.0)])
def test_a_wait_costs_at_most_what_the_device_lacks_work(idle_ms: float, busy_ms: float | None, ceiling: float) -> None:
    timeline = replace(DEVICE_BOUND, idle_most_ms=idle_ms)
    finding = _found(with_(_on_gpu(10.0, device_busy_ms=busy_ms), device=timeline))
    assert finding.savings.ceiling_ms == pytest.approx(ceiling)
    assert finding.savings.high_ms <= ceiling


def test_on_a_cpu_kernels_in_a_profile_hide_no_wait() -> None:
    cpu = waiting(10.0, fetch((25.0, 25.0)), train_ms=20.0)
    assert _found(with_(cpu, ops=replace(healthy().ops, device_busy_ms=29.5))).savings.ceiling_ms == pytest.approx(10)


def test_pageable_copies_are_found_by_their_time() -> None:
    finding = _found(ILL["PD03.pageable-copies"])
    assert finding.id == "PD03.pageable-copies"
    assert finding.location is not None
    assert finding.savings.part is Part.OTHER
    assert "pin_memory=True" in finding.fix.code


def test_pinned_or_short_copies_are_fine() -> None:
    assert is_clear(_examined(pageable_copies(1.2)))
    assert is_clear(_examined(on_gpu(ops__device_copies_ms=10.0)))


def test_copies_are_judged_on_a_device_only() -> None:
    assert is_clear(_examined(with_(healthy(), ops__pageable_copies_ms=10.0)))


def test_a_wait_and_copies_are_two_findings() -> None:
    evidence = with_(_on_gpu(10.0, device_busy_ms=5.0), ops__pageable_copies_ms=5.0)
    assert ids(_examined(evidence)) == ["PD03.transform", "PD03.pageable-copies"]


# ---------------------------------------------------------------------------------------------------------
# A slow batch now and then


def test_workers_that_keep_up_but_for_a_slow_batch_are_to_work_further_ahead() -> None:
    finding = _found(uneven_batches())
    assert finding.id == "PD03.uneven-batches"
    factor = int(number(finding, "prefetch"))
    assert factor > 2 and finding.fix.remedies == (f"etl.prefetch={factor}",)
    assert f"prefetch_factor={factor}" in finding.fix.code
    assert (number(finding, "slow_ms"), number(finding, "typical_ms")) == (60.0, 4.0)
    part = 1 - number(finding, "ahead_ms") / number(finding, "now_ms")
    assert finding.savings.high_ms == pytest.approx(part * 2.5)
    assert finding.savings.low_ms == pytest.approx(0.5 * part * 2.5)


@pytest.mark.parametrize(
    "changes",
    [
        {"each_ms": tuple(4.0 for _ in UNEVEN_MS)},  # all alike
        {"each_ms": ()},  # an older recording
        {"wait_ms": 20.0},  # slow batches explain a small part of this
        {"prefetch_factor": 32},
        {"num_workers": 1},  # one worker cannot keep up
    ],
)
def test_other_waits_are_not_put_down_to_slow_batches(changes: dict[str, Any]) -> None:
    assert "uneven-batches" not in _name(uneven_batches(**changes))


def test_a_trainer_has_its_own_word_for_the_prefetch_factor() -> None:
    finding = _found(with_(uneven_batches(), job__trainer="transformers"))
    assert "dataloader_prefetch_factor=" in finding.fix.code


# ---------------------------------------------------------------------------------------------------------
# The line that makes the batch


def _line(share: float) -> CodeLine:
    return CodeLine(Site("data.py", 41, "resized"), "input_wait", True, 0.0, share)


def test_a_batch_that_must_become_cheaper_is_found_where_it_is_made() -> None:
    finding = _found(waiting(25.0, fetch((60.0, 60.0), lines=(_line(0.7), _line(0.2))), num_workers=2))
    assert finding.id == "PD03.transform"
    assert finding.location is not None
    assert (finding.location.file, finding.location.line) == ("data.py", 41)
    assert "{hottest}" in finding.reasoning
    assert number(finding, "hottest_share") == 0.7


@pytest.mark.parametrize("lines", [(), (_line(0.2), _line(0.2))])
def test_time_that_is_all_over_the_data_set_is_found_at_its_loader(lines: tuple[CodeLine, ...]) -> None:
    finding = _found(waiting(25.0, fetch((60.0, 60.0), lines=lines), num_workers=2))
    assert finding.location is not None
    assert finding.location.file == LOADER_LINE.file
    assert "{hottest}" not in finding.reasoning


def test_workers_are_asked_for_at_the_loader_and_the_line_is_named_beside() -> None:
    finding = _found(waiting(20.0, fetch((20.0, 20.0), lines=(_line(0.7),)), train_ms=20.0, num_workers=0))
    assert finding.id == "PD03.too-few-workers"
    assert finding.location is not None
    assert finding.location.line == LOADER_LINE.line
    assert "{hottest}" in finding.reasoning


@pytest.mark.parametrize(
    ("lines", "severity"), [((), Severity.NOTE), ((_line(0.1),), Severity.WARNING)], ids=["a library's", "the user's"]
)
def test_a_batch_that_a_library_makes_quickly_is_no_alarm(lines: tuple[CodeLine, ...], severity: Severity) -> None:
    """One index for the whole batch of a TensorDataset: 0.5 ms of a step of 4."""
    made = fetch((0.48, 0.48), (0.0, 0.0), lines=lines)
    evidence = waiting(0.5, made, train_ms=3.5, num_workers=0, batch_size=None)
    finding = _found(with_(evidence, code_lines=lines))
    assert (finding.id, finding.severity) == ("PD03.transform", severity)


def test_workers_that_are_kept_by_a_loader_that_is_not_are_started_anew() -> None:
    kept = with_(ILL["PD03.workers-restarted"], loader__persistent_workers=True)
    assert is_clear(_examined(kept))
    finding = _found(with_(kept, loader__made=3))
    assert finding.id == "PD03.workers-restarted"
    assert "Make the loader once" in finding.fix.text


def test_samples_that_come_in_an_order_of_their_own_cannot_be_indexed() -> None:
    """Shards that are unpacked: 1.5 ms of 6, 32 samples a batch."""
    made = fetch((1.4, 1.4), (0.1, 0.1), lines=(_line(0.8),))
    streamed = waiting(1.5, made, train_ms=4.5, num_workers=0, batch_size=32)
    assert _name(streamed) == "per-sample-indexing"
    finding = _found(with_(streamed, loader__iterable=True))
    assert finding.id == "PD03.transform"
    assert "`__iter__`" in finding.message
    assert finding.location == Location("data.py", 41, "resized")
