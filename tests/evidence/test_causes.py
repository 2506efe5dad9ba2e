"""One symptom, several causes: who gets the blame, alone and in company, and what happens when a signal is missing."""

from __future__ import annotations

from typing import Any

import pytest
from dividing import missing, ms_of, rest
from ill_runs.dtype import slow_type
from ill_runs.etl import collecting_workers, fetch, waiting, waiting_for_each
from ill_runs.omp_threads import pinned_workers, timed_threads
from ill_runs.other_processes import crowded, throttled
from ill_runs.vector_extensions import limited
from samples import LOADER, healthy, on_gpu, step, with_

from perfdoctor.evidence.causes import (
    Ledger,
    Signs,
    in_step,
    input_wait,
    lack_of_cpu,
    loader_waits,
    thread_gain,
    type_cost,
)
from perfdoctor.evidence.model import WITHOUT_CPU, Cause, Evidence, InputWait, Lack, Missing, Parts
from perfdoctor.recording.timings import PassWays

GONE = Missing("it was not seen")
STARVED = fetch((25.0, 8.0), (0.0, 0.0), run_delay_ms=17.0)


def _wait(evidence: Evidence) -> InputWait:
    found = input_wait(evidence)
    assert not isinstance(found, Missing), found
    assert sum(ms_of(share) for share in found.shares) == pytest.approx(found.wait_ms)
    assert all(ms_of(share) >= 0 for share in found.shares)
    return found


def _lack(evidence: Evidence, signs: Signs | None = None) -> Lack:
    found = lack_of_cpu(evidence, signs or Signs())
    assert not isinstance(found, Missing)
    return found


def _busy_machine(evidence: Evidence, **changes: Any) -> Evidence:
    """Beside a neighbour who has one of two CPUs."""
    return with_(
        evidence,
        **{
            "host__job_cpus": 1.0,
            "host__others_cpus": 1.0,
            "host__idle_cpus": 0.0,
            "host__job_run_delay_share": 0.4,
            **changes,
        },
    )


# ---------------------------------------------------------------------------------------------------------
# The same 20 ms of waiting for data


ONE_SYMPTOM: dict[str, tuple[Evidence, Cause]] = {
    "a transform": (waiting(20.0, fetch((25.0, 25.0))), Cause.TRANSFORM),
    "storage": (waiting(20.0, fetch((25.0, 1.0))), Cause.STORAGE),
    "collate": (waiting(20.0, fetch((1.0, 1.0), (24.0, 23.0))), Cause.COLLATE),
    "no workers": (waiting(20.0, fetch((19.8, 19.0), (0.1, 0.1)), num_workers=0), Cause.TRANSFORM),
    "a full queue": (waiting(20.0, fetch((2.0, 2.0)), empty_share=0.0, transport_ms=19.0), Cause.HANDOVER),
    "a neighbour": (_busy_machine(waiting(20.0, STARVED)), Cause.NEIGHBOURS),
    "own threads": (waiting(20.0, STARVED), Cause.OWN_THREADS),
    "own demand beside a neighbour": (
        _busy_machine(waiting(20.0, STARVED), host__others_cpus=0.4, host__job_run_delay_share=0.8),
        Cause.OWN_THREADS,
    ),
    "a quota": (with_(waiting(20.0, STARVED), host__throttled_share=0.6), Cause.QUOTA),
    "workers bound to one CPU": (
        with_(_busy_machine(waiting(20.0, STARVED, num_workers=2)), loader__worker_threads__affinity_cpus=1),
        Cause.OWN_THREADS,
    ),
    "an iterator for each batch": (
        waiting(20.0, fetch(), num_workers=0, iterators=200, iterator_start_ms=20.0, batches_per_iterator=1.0),
        Cause.START,
    ),
    "something that makes no batches": (waiting(20.0, fetch((1.0, 1.0)), num_workers=0), Cause.UNEXPLAINED),
    "workers that are quick, and an empty queue": (waiting(20.0, fetch((1.0, 1.0))), Cause.UNEXPLAINED),
}


@pytest.mark.parametrize("case", ONE_SYMPTOM)
def test_one_symptom_is_blamed_on_its_cause(case: str) -> None:
    evidence, cause = ONE_SYMPTOM[case]
    found = _wait(evidence)
    assert found.wait_ms == pytest.approx(20.0)
    assert found.blamed is cause
    assert found.ms(cause) == max(found.ms(other) for other in Cause)


@pytest.mark.parametrize("case", ONE_SYMPTOM)
def test_one_cause_alone_leaves_little_to_the_others(case: str) -> None:
    evidence, cause = ONE_SYMPTOM[case]
    assert _wait(evidence).ms(cause) >= 0.5 * 20.0


@pytest.mark.parametrize("delay_ms", [0.0, 5.0, 9.9])
@pytest.mark.parametrize("blocked_ms", [0.0, 4.0, 8.0])
def test_causes_in_company_share_the_wait_as_they_share_the_making(delay_ms: float, blocked_ms: float) -> None:
    made = fetch((25.0, 25.0 - delay_ms - blocked_ms), (0.0, 0.0), run_delay_ms=delay_ms)
    found = _wait(_busy_machine(waiting(20.0, made)))
    assert found.ms(Cause.NEIGHBOURS) == pytest.approx(20.0 * delay_ms / 25.0)
    assert found.ms(Cause.STORAGE) == pytest.approx(20.0 * blocked_ms / 25.0)
    assert found.ms(Cause.TRANSFORM) == pytest.approx(20.0 * (25.0 - delay_ms - blocked_ms) / 25.0)


@pytest.mark.parametrize(("delay_ms", "blamed"), [(9.9, Cause.TRANSFORM), (10.1, Cause.NEIGHBOURS)])
def test_a_lack_of_cpus_is_blamed_before_it_is_the_largest_part(delay_ms: float, blamed: Cause) -> None:
    made = fetch((25.0, 25.0 - delay_ms), (0.0, 0.0), run_delay_ms=delay_ms)
    assert _wait(_busy_machine(waiting(20.0, made))).blamed is blamed


@pytest.mark.parametrize(
    ("made_ms", "making_ms", "blamed"), [(12.0, 7.0, Cause.HANDOVER), (18.0, 13.0, Cause.TRANSFORM)]
)
def test_with_a_full_queue_making_explains_only_what_it_takes_longer_than_the_loop(
    made_ms: float, making_ms: float, blamed: Cause
) -> None:
    """Training takes 5 ms."""
    found = _wait(waiting(20.0, fetch((made_ms, made_ms), (0.0, 0.0)), empty_share=0.1, transport_ms=3.0))
    assert found.making_ms == pytest.approx(making_ms)
    assert found.ms(Cause.HANDOVER) == pytest.approx(20.0 - making_ms)
    assert found.blamed is blamed


def test_with_an_empty_queue_receiving_passes_while_the_next_batch_is_made() -> None:
    found = _wait(waiting(20.0, fetch((25.0, 25.0)), empty_share=0.9, transport_ms=8.0))
    assert found.ms(Cause.HANDOVER) == pytest.approx(0.0)


def test_making_explains_no_more_than_it_takes() -> None:
    found = _wait(waiting(20.0, fetch((11.0, 11.0), (0.0, 0.0)), transport_ms=2.0))
    assert found.making_ms == pytest.approx(11.0)
    assert found.ms(Cause.HANDOVER) == pytest.approx(2.0)
    assert found.ms(Cause.UNEXPLAINED) == pytest.approx(7.0)


def test_started_workers_have_their_part_before_the_making() -> None:
    short_epochs = {"persistent_workers": False, "iterators": 20, "iterator_start_ms": 30.0}
    found = _wait(waiting(20.0, fetch((25.0, 25.0)), batches_per_iterator=4.0, **short_epochs))
    assert found.ms(Cause.START) == pytest.approx((30.0 - 20.0) / 4)
    assert found.blamed is Cause.TRANSFORM
    long_epochs = with_(waiting(20.0, fetch((25.0, 25.0)), **short_epochs), step__irregular_ms=30.0)
    assert _wait(long_epochs).ms(Cause.START) == 0


def test_a_collection_is_no_part_of_the_wait_that_it_interrupts() -> None:
    """It is in `Parts.gc`: the wait that is left is what the making explains."""
    collecting = with_(healthy(), step=step(Parts(forward=5.0, gc=135.0)))
    assert _wait(collecting).wait_ms == 0
    assert rest(collecting).ms(Cause.GC) == pytest.approx(135.0)


def test_collections_in_workers_are_a_part_of_the_making_of_their_own() -> None:
    found = _wait(collecting_workers())
    assert found.blamed is Cause.GC
    assert found.ms(Cause.GC) == pytest.approx(found.making_ms * 30.0 / 40.0)
    assert found.ms(Cause.TRANSFORM) == pytest.approx(found.making_ms * 9.0 / 40.0)
    assert _wait(collecting_workers(gc_ms=8.0)).blamed is Cause.TRANSFORM


def test_a_wait_behind_a_busy_device_is_hidden() -> None:
    evidence = with_(waiting(10.0, fetch((25.0, 25.0)), train_ms=20.0), ops=healthy().ops)
    found = _wait(on_gpu(evidence, ops__device_busy_ms=24.0))
    assert (found.wait_ms, found.hidden_ms) == (pytest.approx(6.0), pytest.approx(4.0))


def test_run_delay_is_no_more_than_the_time_off_the_cpu() -> None:
    """It is counted over all of a worker's batches, the other two over those that were timed."""
    found = _wait(_busy_machine(waiting(20.0, fetch((25.0, 24.0), (0.0, 0.0), run_delay_ms=9.0))))
    assert found.ms(*WITHOUT_CPU) == pytest.approx(20.0 * 1.0 / 25.0)


def test_workers_that_are_gone_bind_nobody() -> None:
    evidence = _busy_machine(waiting(20.0, STARVED, num_workers=0))
    assert _wait(with_(evidence, loader__worker_threads__affinity_cpus=1)).ms(Cause.OWN_THREADS) == 0


@pytest.mark.parametrize("part", ["step", "loaders"])
def test_without_steps_or_loaders_there_is_nothing_to_divide(part: str) -> None:
    assert input_wait(with_(healthy(), **{part: GONE})) == GONE


def test_a_making_that_was_not_timed_leaves_the_wait_unexplained() -> None:
    found = _wait(waiting(20.0, GONE))
    assert found.blamed is Cause.UNEXPLAINED
    assert found.ms(Cause.UNEXPLAINED) == pytest.approx(20.0)
    assert {Cause.TRANSFORM, Cause.STORAGE, Cause.COLLATE, Cause.HANDOVER} == missing(found.shares)


def test_without_the_monitor_nobody_is_blamed_for_taking_the_cpu() -> None:
    found = _wait(with_(waiting(20.0, STARVED), host=GONE))
    assert found.blamed is Cause.NO_CPU
    assert any("it was not seen" in share.basis for share in found.shares)


def test_no_loader_at_all_explains_nothing() -> None:
    found = _wait(with_(healthy(), loaders=()))
    assert (found.blamed, found.ms(Cause.UNEXPLAINED)) == (Cause.UNEXPLAINED, pytest.approx(0.3))


# ---------------------------------------------------------------------------------------------------------
# Several loaders


def _waits(evidence: Evidence) -> tuple[InputWait, ...]:
    found, whole = loader_waits(evidence), _wait(evidence)
    assert not isinstance(found, Missing)
    for one in found:
        assert sum(ms_of(share) for share in one.shares) == pytest.approx(one.wait_ms)
    assert sum(one.wait_ms for one in found) == pytest.approx(whole.wait_ms)
    return found


STORAGE = waiting(30.0, fetch((29.5, 1.0), (0.1, 0.1)), num_workers=0)
TRANSFORM = waiting(20.0, fetch((19.5, 19.5), (0.1, 0.1)), num_workers=0)


def test_each_loader_has_its_own_wait_and_its_own_cause() -> None:
    evidence = waiting_for_each(STORAGE, TRANSFORM)
    slow, quick = _waits(evidence)
    assert (slow.wait_ms, quick.wait_ms) == (pytest.approx(30.0), pytest.approx(20.0))
    assert (slow.blamed, quick.blamed) == (Cause.STORAGE, Cause.TRANSFORM)
    assert (slow.making_ms, quick.making_ms) == (pytest.approx(29.6), pytest.approx(19.6))
    assert _wait(evidence).blamed is Cause.STORAGE  # of the one that is waited for longest
    assert _wait(evidence).ms(Cause.TRANSFORM) == pytest.approx(1.0 + 19.5)


def test_one_loader_has_all_of_the_wait() -> None:
    assert loader_waits(STORAGE) == (input_wait(STORAGE),)


def test_a_loader_of_another_rhythm_has_what_a_step_waits_for_it() -> None:
    """One batch every second step."""
    rare = with_(TRANSFORM, loader__steady_batches_per_step=0.5)
    _, quick = _waits(waiting_for_each(STORAGE, rare))
    assert (quick.wait_ms, quick.making_ms) == (pytest.approx(10.0), pytest.approx(9.8))
    assert quick.blamed is Cause.TRANSFORM


def test_loaders_are_blamed_for_no_more_than_the_step_waits() -> None:
    """On a device most of the wait is hidden; and waits within waits are counted twice where they are measured."""
    evidence = with_(waiting_for_each(STORAGE, TRANSFORM), step__parts__input_wait=25.0)
    assert [wait.wait_ms for wait in _waits(evidence)] == [pytest.approx(15.0), pytest.approx(10.0)]
    hidden = on_gpu(with_(waiting_for_each(STORAGE, TRANSFORM), ops=healthy().ops), ops__device_busy_ms=40.0)
    waits = _waits(hidden)
    assert [wait.wait_ms for wait in waits] == [pytest.approx(12.0), pytest.approx(8.0)]
    assert sum(wait.hidden_ms for wait in waits) == pytest.approx(30.0)


def test_iterators_that_start_in_every_step_count_for_their_loader() -> None:
    anew = {"iterators": 200, "iterator_start_ms": 25.0, "batches_per_iterator": 1.0}
    rebuilt = waiting(20.0, fetch(), num_workers=0, **anew)
    evidence = with_(waiting_for_each(STORAGE, rebuilt), step__parts__input_wait=55.0)
    slow, quick = _waits(evidence)
    assert (slow.wait_ms, quick.wait_ms) == (pytest.approx(30.0), pytest.approx(25.0))
    assert (slow.blamed, quick.blamed) == (Cause.STORAGE, Cause.START)


def test_a_wait_for_nobody_is_the_first_loader_s() -> None:
    quiet = with_(waiting_for_each(STORAGE, TRANSFORM), step__parts__input_wait=0.2)
    assert not isinstance(quiet.loaders, Missing)
    silent = with_(quiet, loaders=tuple(with_(one, wait_ms=0.0) for one in quiet.loaders))
    assert [wait.wait_ms for wait in _waits(silent)] == [pytest.approx(0.2), 0.0]


# ---------------------------------------------------------------------------------------------------------
# Who had the CPUs


@pytest.mark.parametrize(
    ("evidence", "owners"),
    [
        (crowded(8.0), {Cause.NEIGHBOURS: 1.0}),
        (crowded(8.0, others=0.2), {Cause.OWN_THREADS: 1.0}),
        (crowded(8.0, host__idle_cpus=0.8), {Cause.NO_CPU: 1.0}),
        (throttled(host__throttled_time_share=Missing("no time")), {Cause.QUOTA: 1.0}),
        # Two CPUs' worth of work beyond the three that there are: half of what is lacking.
        (
            crowded(host__job_cpus=1.0, host__others_cpus=2.0, host__idle_cpus=0.0, host__job_run_delay_share=0.8),
            {Cause.OWN_THREADS: 0.5, Cause.NEIGHBOURS: 0.5},
        ),
        # One CPU of the four that are lacking was stopped; of the rest the same half each.
        (
            crowded(
                host__job_cpus=1.0,
                host__others_cpus=2.0,
                host__idle_cpus=0.0,
                host__job_run_delay_share=0.8,
                host__throttled_share=0.5,
                host__throttled_time_share=1.0,
            ),
            {Cause.QUOTA: 0.25, Cause.OWN_THREADS: 0.375, Cause.NEIGHBOURS: 0.375},
        ),
    ],
)
def test_the_lack_of_cpus_is_divided_among_its_owners(evidence: Evidence, owners: dict[Cause, float]) -> None:
    lack = _lack(evidence)
    assert {cause: lack.fraction(cause) for cause in WITHOUT_CPU if lack.fraction(cause)} == pytest.approx(owners)


def test_other_processes_count_from_three_tenths_of_a_core_on() -> None:
    assert _lack(crowded(8.0, others=0.31, host__idle_cpus=0.0)).fraction(Cause.NEIGHBOURS) > 0
    assert _lack(crowded(8.0, others=0.29, host__idle_cpus=0.0)).fraction(Cause.OWN_THREADS) == 1.0


def test_what_counts_as_a_sign_can_be_set() -> None:
    assert _lack(crowded(others=0.2), Signs(others_cpus=0.1, idle_cpus=1.0)).fraction(Cause.NEIGHBOURS) == 1.0


@pytest.mark.parametrize(("quota", "threads", "too_large"), [(1.5, 2, False), (1.5, 3, True), (None, 4, False)])
def test_a_team_is_too_large_beyond_the_cpus_it_can_be_given(quota: float, threads: int, too_large: bool) -> None:
    evidence = with_(healthy(), machine__quota_cpus=quota, threads__intra_op=threads)
    assert _lack(evidence).team_too_large is too_large


@pytest.mark.parametrize(
    ("changes", "share"),
    [
        ({"host__job_run_delay_share": 0.3}, 0.3),
        ({"host__job_run_delay_share": GONE}, 8.0 / (8.0 + 15.0)),
        ({"host": GONE}, 8.0 / (8.0 + 15.0)),
        ({"host": GONE, "step__run_delay_ms": GONE}, None),
    ],
)
def test_without_the_jobs_threads_the_training_thread_speaks(changes: dict[str, Any], share: float | None) -> None:
    lack = _lack(with_(crowded(8.0), **changes))
    assert lack.job_share == (GONE if share is None else pytest.approx(share))
    assert isinstance(lack.owners, Missing) is ("host" in changes)


def test_bound_workers_of_one_cpu_are_told_from_a_neighbour() -> None:
    bound = _busy_machine(with_(pinned_workers(20.0), loader__fetch=STARVED, loader__empty_share=1.0))
    assert _wait(bound).ms(Cause.OWN_THREADS) > 0
    assert _wait(with_(bound, loader__worker_threads__affinity_cpus=4)).ms(Cause.OWN_THREADS) == 0


# ---------------------------------------------------------------------------------------------------------
# The rest of the step


PASSES = PassWays(10.0, (("threads=1", 20.0),))
"""Of which two threads are the better; of the operators one is."""


@pytest.mark.parametrize(
    ("changes", "best"),
    [
        ({}, 2),
        ({"host__others_cpus": 0.3}, 1),
        ({"host": GONE}, 1),
        ({"loaders": (with_(LOADER, num_workers=1),)}, 1),
        ({"ops__ways": GONE}, 1),
    ],
)
def test_whole_passes_tell_the_threads_where_nothing_else_had_a_cpu(changes: dict[str, Any], best: int) -> None:
    timed = timed_threads(2, {1: 5.0, 2: 10.0})
    evidence = with_(timed, ops__ways=PASSES, loaders=(), host__others_cpus=0.0)
    gain = thread_gain(with_(evidence, **changes))
    assert not isinstance(gain, Missing) and gain.best.threads == best and gain.of_passes == (best == 2)


@pytest.mark.parametrize(
    ("evidence", "cause"),
    [
        (slow_type("float64"), Cause.TYPES),
        (slow_type("bfloat16", ratio=40.0), Cause.TYPES),
        (limited(), Cause.VECTOR_EXTENSIONS),
        (timed_threads(2, {1: 5.0, 2: 10.0}), Cause.THREADS),
    ],
)
def test_timings_say_which_setting_would_save_it(evidence: Evidence, cause: Cause) -> None:
    found = rest(evidence)
    saved = {share.cause: ms_of(share) for share in found.savable}
    assert saved.pop(cause) > 5.0
    assert sum(saved.values()) == pytest.approx(0.0)


def test_settings_that_would_save_the_same_time_share_it() -> None:
    """Half by threads; of the other half what types save of the whole."""
    alone = rest(slow_type("float64"))
    both = rest(
        with_(
            slow_type("float64"),
            ops__thread_timings=timed_threads(2, {1: 5.0, 2: 10.0}).ops.thread_timings,
            threads__intra_op=2,
        )
    )  # type: ignore[union-attr]
    of_types = {share.cause: ms_of(share) for share in alone.savable}[Cause.TYPES]
    saved = {share.cause: ms_of(share) for share in both.savable}
    assert saved[Cause.THREADS] == pytest.approx(24.6 / 2)
    assert saved[Cause.TYPES] == pytest.approx(of_types / 2)


def test_on_a_device_the_timings_of_types_on_the_host_say_nothing() -> None:
    assert Cause.TYPES in missing(rest(on_gpu(slow_type("float64"))).savable)


def test_without_the_operator_window_nothing_is_timed() -> None:
    found = rest(with_(healthy(), ops=GONE))
    assert missing(found.savable) == {Cause.THREADS, Cause.TYPES, Cause.VECTOR_EXTENSIONS}


def test_half_types_without_a_timing_are_not_said_to_gain() -> None:
    """float64 gains from half the bytes whatever the operator; a type that is emulated loses bytes."""
    costs = {}
    for dtype in ("float64", "bfloat16"):
        evidence = slow_type(dtype, ratio=None)
        assert not isinstance(evidence.step, Missing) and not isinstance(evidence.ops, Missing)
        costs[dtype] = type_cost(evidence.step, evidence.ops, dtype)
    assert costs["float64"].low_ms > 0
    assert costs["bfloat16"].high_ms == 0


def test_an_empty_profile_takes_no_time() -> None:
    evidence = with_(healthy(), ops__self_ms_per_step=0.0)
    assert not isinstance(evidence.step, Missing) and not isinstance(evidence.ops, Missing)
    assert in_step(evidence.step, evidence.ops, 3.0) == 0


def test_profiled_time_fits_the_step_without_waiting_and_collections() -> None:
    """20.1 ms of float64 a step were once reported in a job that computes for 10.9."""
    evidence = with_(healthy(), step=step(Parts(input_wait=30.0, forward=4.0, backward=6.9, gc=5.0)))
    seen, ops = evidence.step, evidence.ops
    assert not isinstance(seen, Missing) and not isinstance(ops, Missing)
    assert in_step(seen, ops, ops.self_ms_per_step) == pytest.approx(10.9)


# ---------------------------------------------------------------------------------------------------------
# The ledger


def test_a_ledger_gives_away_no_more_than_it_has() -> None:
    ledger = Ledger(10.0)
    taken = [ledger.take(ms) for ms in (7.0, -1.0, 7.0, 7.0)]
    assert taken == [7.0, 0.0, 3.0, 0.0]
    assert ledger.left_ms == 0


def test_what_nobody_took_is_unexplained_and_what_is_missing_stays_so() -> None:
    ledger = Ledger(10.0)
    ledger.give(Cause.GC, 4.0, "timed")
    ledger.give(Cause.BLOCKED, GONE, "not told")
    assert [(share.cause, share.ms) for share in ledger.close("nobody knows")] == [
        (Cause.GC, 4.0),
        (Cause.BLOCKED, GONE),
        (Cause.UNEXPLAINED, 6.0),
    ]


def test_collections_that_waited_for_a_cpu_leave_that_to_who_had_it() -> None:
    made = with_(fetch((2.0, 2.0), (0.0, 0.0), run_delay_ms=10.0), gc_ms=30.0)
    found = _wait(waiting(27.0, made))
    assert found.ms(Cause.GC) == pytest.approx(found.making_ms * 20.0 / 32.0)
    assert found.ms(*WITHOUT_CPU) == pytest.approx(found.making_ms * 10.0 / 32.0)
    assert sum(share.ms for share in found.shares if not isinstance(share.ms, Missing)) == pytest.approx(27.0)
