from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ill_runs.shared_model import (
    COLLECT_LINE,
    actors_behind_a_lock,
    behind_a_lock,
    graphs_in_threads,
    pausing,
    polling,
    serving,
    with_teams,
)
from ill_runs.workspaces import graph_in_evaluation
from ills import ILL
from perfdoctor.checks import workspaces
from perfdoctor.checks.shared_model import CHECK
from samples import asked, healthy, ids, is_clear, number, only, step, with_

from perfdoctor.diagnosis.findings import Confidence, Part, Severity
from perfdoctor.diagnosis.outcomes import OutcomeKind
from perfdoctor.evidence.model import LockWaits, Missing, Parts, RequestTiming, ThreadTiming

NOT_TIMED = Missing("no forward could be timed as a batch")


_examined, _found = asked(CHECK)


@pytest.mark.parametrize("part", ["step", "concurrency"])
def test_without_steps_or_counters_nothing_is_claimed(part: str) -> None:
    outcome = _examined(with_(serving(), **{part: Missing("it was not seen")}))
    assert outcome.kind is OutcomeKind.CANNOT_TELL
    assert "it was not seen" in outcome.reason


def test_one_thread_is_clear_with_its_forwards() -> None:
    outcome = _examined(healthy())
    assert is_clear(outcome)
    assert number(outcome, "forwards") == 200


def test_the_threads_of_data_parallel_are_left_to_pd01() -> None:
    outcome = _examined(with_(serving(), backend__data_parallel=True))
    assert outcome.kind is OutcomeKind.NOT_APPLICABLE
    assert "PD01" in outcome.reason


# ---------------------------------------------------------------------------------------------------------
# The interpreter's lock


def test_threads_that_wait_for_the_lock_are_found_with_the_line_that_calls_the_model() -> None:
    finding = _found(ILL["PD06.gil-bound-forwards"])
    assert finding.severity is Severity.ERROR
    assert finding.confidence is Confidence.HIGH
    assert finding.location is not None
    assert (finding.location.file, finding.location.line) == ("serve.py", 17)
    assert number(finding, "blocked") == pytest.approx(0.4)
    assert number(finding, "useful") == pytest.approx(0.6)
    assert "one batch" in finding.fix.text
    assert finding.savings.part is Part.COMPUTE


def test_a_batch_is_timed_by_its_operators_python_once_and_a_hand_over_for_each() -> None:
    saved = _found(serving(in_flight=4.0, delay_share=0.0)).savings
    # 0.07 ms of operators; 0.10 ms of Python at best and 0.35 at worst; 4 hand-overs of 0.02 to 0.1 ms.
    assert saved.high_ms == pytest.approx(1.0 - (0.07 + 0.10 + 4 * 0.02))
    assert saved.low_ms == pytest.approx(1.0 - (0.07 + 0.35 + 4 * 0.1))
    assert saved.high_ms <= saved.ceiling_ms <= 1.0


def test_requests_that_are_queued_up_would_share_a_batch_too() -> None:
    """32 requests take 8 ms now, four at a time; as one batch 0.257 ms of operators, Python once, 3 to 30 us each."""
    timing = RequestTiming(32, 16, 16, 0.05, 0.257, 1, 0.05, 0.05, 5)
    queued = _found(serving(in_flight=4.0, delay_share=0.0, backlog=500.0, timing=timing))
    # At best also what a thread does beside the forward, 0.05 ms of a step, is done once for all.
    assert queued.savings.high_ms == pytest.approx(1.05 * (1.0 - (0.257 + 0.10 + 32 * 0.003) / 8))
    assert queued.savings.low_ms == pytest.approx(1.0 - (0.257 + 0.35 + 32 * 0.03) / 8)
    assert number(queued, "backlog") == 500


@pytest.mark.parametrize("backlog", [Missing("no queue"), 0.0])
def test_without_a_backlog_a_batch_holds_what_is_under_way(backlog: float | Missing) -> None:
    saved = _found(serving(in_flight=4.0, delay_share=0.0, backlog=backlog)).savings
    assert saved.high_ms == pytest.approx(1.0 - (0.07 + 0.10 + 4 * 0.02))


def test_waiting_for_a_cpu_makes_the_prediction_cautious() -> None:
    free, crowded = (_found(serving(delay_share=delay)).savings for delay in (0.0, 0.5))
    assert crowded.low_ms < free.low_ms
    assert crowded.high_ms == pytest.approx(free.high_ms, rel=0.05)


@pytest.mark.parametrize(("overlapped", "count"), [(0.19, 0), (0.21, 1)])
def test_forwards_must_overlap(overlapped: float, count: int) -> None:
    assert ids(_examined(serving(overlapped_share=overlapped))) == ["PD06.gil-bound-forwards"] * count


@pytest.mark.parametrize(("steal_share", "count"), [(0.0, 1), (0.45, 1), (0.55, 0)])
def test_what_the_hypervisor_took_is_no_wait_for_a_lock(steal_share: float, count: int) -> None:
    """Of 0.4 ms on a CPU 0.18 or 0.22 ms may be others': of 0.4 ms without one, 0.22 or 0.18 are left."""
    busy = serving(least_cpu_ms=0.4, timing=NOT_TIMED, host__steal_share=steal_share)
    assert len(ids(_examined(busy))) == count


def test_threads_do_more_than_it_seems_while_the_hypervisor_takes_their_cpus() -> None:
    """0.4 ms of each 1 ms on a CPU, of which half is taken: without that they would do a quarter more."""
    few = number(_found(serving()), "useful")
    assert number(_found(serving(host__steal_share=0.5)), "useful") == pytest.approx(few / 0.8, abs=0.06)


@pytest.mark.parametrize(("blocked", "count"), [(0.19, 0), (0.21, 1)])
def test_they_must_wait_for_a_lock(blocked: float, count: int) -> None:
    busy = serving(blocked_share=blocked, least_cpu_ms=0.4, timing=NOT_TIMED)
    assert len(ids(_examined(busy))) == count


def test_waiting_that_forwards_do_without_company_is_not_the_locks() -> None:
    evidence = serving(blocked_share=0.5, blocked_alone_share=0.45, least_cpu_ms=0.4, timing=NOT_TIMED)
    assert is_clear(_examined(evidence))


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 1),
        ({"least_cpu_ms": 0.34}, 0),  # the work of 1.3 threads
        ({"occupied_share": 1.4, "wall_ms": 1.0}, 0),  # mostly nobody asks
        ({"timing": RequestTiming(4, 16, 16, 0.05, 0.17, 1, 0.05, 0.05, 5)}, 0),  # a second request costs as much again
        ({"timing": NOT_TIMED}, 0),
    ],
)
def test_small_operators_that_gain_nothing_from_threads_need_no_long_waits(changes: dict[str, Any], count: int) -> None:
    assert len(ids(_examined(serving(blocked_share=0.1, **changes)))) == count


def test_large_kernels_on_several_threads_are_fine() -> None:
    large = serving(
        wall_ms=10.0,
        cpu_ms=9.0,
        least_cpu_ms=8.8,
        blocked_share=0.05,
        timing=RequestTiming(4, 6, 6, 8.7, 34.0, 1, 8.7, 8.7, 5),
        step=step(Parts(forward=10.0), boundary="forward"),
    )
    assert is_clear(_examined(large))


def test_large_kernels_beside_neighbours_are_not_the_locks_fault() -> None:
    crowded = serving(
        wall_ms=17.0,
        cpu_ms=4.8,
        least_cpu_ms=4.4,
        blocked_share=0.06,
        delay_share=0.66,
        timing=RequestTiming(4, 6, 6, 4.4, 17.5, 1, 5.6, 5.6, 5),
        step=step(Parts(forward=17.0), boundary="forward"),
        host__others_cpus=3.0,
    )
    assert is_clear(_examined(crowded))


def test_few_measured_forwards_do_not_clear() -> None:
    assert _examined(serving(measured=5)).kind is OutcomeKind.CANNOT_TELL


def test_a_batch_that_saves_little_gives_way_to_processes() -> None:
    large = RequestTiming(4, 16, 16, 0.14, 0.5, 1, 0.14, 0.14, 5)
    assert "processes" in _found(serving(timing=large)).fix.text


def test_models_of_their_own_need_processes() -> None:
    finding = _found(serving(shared=False))
    assert "processes" in finding.fix.text
    assert "ProcessPoolExecutor" in finding.fix.code
    assert "a model each" in finding.message


def test_processes_are_no_more_than_the_cpus_that_neighbours_leave() -> None:
    assert _examined(serving(shared=False, host__others_cpus=3.0)).kind is OutcomeKind.CLEAR
    assert "\n    3, " in _found(serving(shared=False, host__others_cpus=0.5)).fix.code


def test_ray_has_batching_of_its_own() -> None:
    assert "@serve.batch" in _found(serving(job__frameworks=("ray",))).fix.code


def test_with_intra_op_threads_only_short_operators_can_be_waiting_for_the_lock() -> None:
    assert ids(_examined(serving(threads__intra_op=2))) == ["PD06.gil-bound-forwards"]
    waits_for_its_team = with_teams(timing=RequestTiming(4, 6, 6, 7.0, 27.0, 4, 9.0, 9.0, 5))
    assert is_clear(_examined(waits_for_its_team))


def test_beside_a_training_loop_only_its_own_waiting_can_be_saved() -> None:
    loop = step(Parts(forward=2.0, backward=3.0, optimizer=1.0, other=4.0), cpu_ms=5.0, run_delay_ms=1.0)
    finding = _found(serving(step=loop))
    assert finding.savings.ceiling_ms <= 4.0
    assert finding.savings.low_ms == 0
    assert finding.confidence is Confidence.MEDIUM
    busy = step(Parts(forward=2.0, backward=3.0, optimizer=1.0, other=4.0), cpu_ms=9.5, run_delay_ms=0.2)
    assert is_clear(_examined(serving(step=busy)))


# ---------------------------------------------------------------------------------------------------------
# A lock of the job's own


def test_a_lock_around_the_model_is_found_by_those_who_wait_before_it() -> None:
    finding = _found(ILL["PD06.serialised-forwards"])
    assert number(finding, "waiters") == 3
    # Four requests: 0.8 ms of operators and 0.3 ms of Python at best, where they take 4 ms one by one.
    assert finding.savings.high_ms == pytest.approx(4.0 * (1 - (0.8 + 0.3 + 0.08) / 4.0))


@pytest.mark.parametrize(
    "changes",
    [{"waiters": 0.4}, {"occupied_share": 0.6}, {"overlapped_share": 0.06}],
    ids=["nobody waits", "often empty", "they do overlap"],
)
def test_turns_that_nobody_waits_for_are_no_lock(changes: dict[str, Any]) -> None:
    assert is_clear(_examined(behind_a_lock(**changes)))


# ---------------------------------------------------------------------------------------------------------
# Teams


def test_teams_that_do_not_fit_on_the_cpus_are_found_by_their_timing() -> None:
    finding = _found(ILL["PD06.oversubscribed-teams"])
    assert number(finding, "slower") == pytest.approx(15 / 9)
    assert finding.savings.high_ms == pytest.approx(0.4 * 20.0)
    assert finding.savings.low_ms == pytest.approx(0.2 * 20.0)
    assert "set_num_threads(1)" in finding.fix.code


@pytest.mark.parametrize(
    "changes",
    [
        {"threads__intra_op": 1, "blocked_share": 0.0},
        {"timing": RequestTiming(4, 6, 6, 7.0, 27.0, 4, 11.0, 9.0, 5)},
        {"timing": RequestTiming(4, 6, 6, 7.0, 27.0, 4, 15.0, 9.0, 1)},
        {"machine__affinity_cpus": 64},
        {"in_flight": 1.0, "overlapped_share": 0.1},
    ],
    ids=["one thread each", "18 percent", "timed once", "CPUs enough", "alone"],
)
def test_teams_that_fit_or_cost_little_are_fine(changes: dict[str, Any]) -> None:
    assert is_clear(_examined(with_teams(**changes)))


def test_a_thread_count_that_pd13_has_timed_is_billed_there() -> None:
    timed = with_(healthy().ops, thread_timings=(ThreadTiming(1, 9.0), ThreadTiming(4, 15.0)))
    assert is_clear(_examined(with_teams(ops=timed)))


# ---------------------------------------------------------------------------------------------------------
# What threads do not inherit


def test_gradients_in_threads_are_billed_here_and_not_by_pd08() -> None:
    evidence = graphs_in_threads(memory=graph_in_evaluation().memory)
    assert _found(ILL["PD06.grad-in-threads"]).savings.high_ms == pytest.approx(0.27)
    assert workspaces.examine(evidence, workspaces.CHECK.limits).kind is OutcomeKind.CLEAR
    trained = with_(evidence, concurrency__backwards=1)
    assert ids(workspaces.examine(trained, workspaces.CHECK.limits)) == ["PD08.grad-in-evaluation"]


@pytest.mark.parametrize("changes", [{"backwards": 1}, {"eval_with_grad": 3_999}, {"eval_with_grad_share": 0.1}])
def test_graphs_that_are_used_or_few_are_fine(changes: dict[str, Any]) -> None:
    assert is_clear(_examined(graphs_in_threads(**changes)))


def test_training_mode_in_threads_is_a_note() -> None:
    quiet = {"blocked_share": 0.0, "timing": NOT_TIMED}
    finding = _found(serving(in_training=7_900, **quiet))
    assert finding.id == "PD06.train-mode-shared"
    assert finding.severity is Severity.NOTE
    assert finding.savings.ceiling_ms == 0
    for changes in (
        {"in_training": 3_000},
        {"in_training": 7_900, "backwards": 3},
        {"in_training": 8_000, "shared": False},
    ):
        assert is_clear(_examined(serving(**quiet, **changes)))


# ---------------------------------------------------------------------------------------------------------
# Threads beside a training loop, and a lock of the job's own


def test_threads_that_wait_for_the_jobs_own_lock_are_found_where_they_wait() -> None:
    finding = _found(actors_behind_a_lock())
    assert finding.id == "PD06.waits-for-lock"
    assert finding.location is not None
    assert (finding.location.file, finding.location.line) == ("train.py", 61)
    assert "copy.deepcopy" in finding.fix.code
    assert number(finding, "loop_ms") == pytest.approx(10.0)
    # 1.1 of 2 CPUs are busy, and 0.9 threads wait: with all at work the same takes 11 of 20 ms.
    assert finding.savings.high_ms == pytest.approx(9.0)
    assert finding.savings.low_ms == pytest.approx(4.5)


def test_no_more_is_saved_than_the_loop_waits() -> None:
    waits = actors_behind_a_lock().lock_waits
    assert isinstance(waits, LockWaits)
    finding = _found(actors_behind_a_lock(lock_waits=replace(waits, loop_waits=0.2)))
    assert finding.savings.high_ms == pytest.approx(4.0)


def test_a_thread_that_calls_no_model_is_to_hold_its_lock_for_less_time() -> None:
    finding = _found(actors_behind_a_lock(concurrency=healthy().concurrency))
    assert finding.id == "PD06.waits-for-lock"
    assert "snapshot" in finding.fix.code


@pytest.mark.parametrize(
    "changes",
    [
        {"host__job_cpus": 2.0, "host__idle_cpus": 0.0},
        {"lock_waits__loop_waits": 0.0},
        {"lock_waits__rows": ()},
        {"lock_waits__looks": 12},
        {"lock_waits": Missing("no other thread runs the job's own code")},
    ],
    ids=["no CPU idles", "the loop waits for nobody", "nobody waits", "too few looks", "no other thread"],
)
def test_a_lock_that_keeps_nobody_from_work_is_none_of_its_business(changes: dict[str, Any]) -> None:
    assert "PD06.waits-for-lock" not in ids(_examined(actors_behind_a_lock(**changes)))


def test_a_thread_that_asks_without_end_takes_a_cpu_from_training() -> None:
    finding = _found(polling())
    assert finding.id == "PD06.busy-waiting"
    assert finding.location is not None and finding.location.line == 42
    lost_ms = number(finding, "lost_ms")
    assert lost_ms == pytest.approx(0.2 * 0.95 * 25.0, rel=0.02), "both compute threads wait"
    assert finding.savings.low_ms == pytest.approx(0.5 * lost_ms)
    assert finding.savings.high_ms == pytest.approx(2.2 * lost_ms)
    assert number(_found(polling(0.4, threads__intra_op=1)), "lost_ms") == pytest.approx(lost_ms, rel=0.02)


@pytest.mark.parametrize(
    ("changes", "told_ms"),
    [
        ({}, 6.0),
        ({"host__others_cpus": 0.2}, 6.0 / 2),  # of which a neighbour has its part
        ({"step__run_delay_ms": 0.5}, 0.0),
        ({"threads__intra_op": 4}, 0.0),  # that fight for CPUs themselves
    ],
)
def test_what_training_waits_for_a_cpu_beside_such_a_thread_is_lost_though_one_idles_at_times(
    changes: dict[str, Any], told_ms: float
) -> None:
    outcome = _examined(polling(0.2 / 0.95, 0.3, **{"step__run_delay_ms": 6.0, **changes}))
    assert ("PD06.busy-waiting" in ids(outcome)) is bool(told_ms)
    assert not told_ms or number(only(outcome), "lost_ms") == pytest.approx(told_ms)


@pytest.mark.parametrize(
    ("changes", "told"),
    [({}, True), ({"step__cpu_ms": 23.5}, False), ({"lock_waits__loop_waits": 0.3}, False)],
    ids=["for the interpreter", "it hardly stands still", "in a lock"],
)
def test_training_that_stands_still_beside_such_a_thread_may_wait_for_the_interpreter(
    changes: dict[str, Any], told: bool
) -> None:
    outcome = _examined(polling(0.2, 0.3, **{"step__run_delay_ms": 0.5, "step__cpu_ms": 17.0, **changes}))
    assert ("PD06.busy-waiting" in ids(outcome)) is told
    assert not told or (only(outcome).severity, only(outcome).confidence) == (Severity.NOTE, Confidence.MEDIUM)


@pytest.mark.parametrize(
    ("cpus", "idle"), [(0.08, 0.0), (0.7, 0.8)], ids=["it hardly takes any", "a CPU idles beside it"]
)
def test_a_thread_that_takes_nothing_from_training_is_left_alone(cpus: float, idle: float) -> None:
    assert "PD06.busy-waiting" not in ids(_examined(polling(cpus, idle)))


def test_a_wait_that_always_runs_out_is_told_where_everybody_waits_for_it() -> None:
    finding = _found(pausing())
    assert finding.id == "PD06.awaited-pause" and finding.is_opportunity
    assert finding.location is not None and finding.location.line == COLLECT_LINE.line
    # 9 of the 20 ms.
    assert (finding.savings.low_ms, finding.savings.high_ms) == pytest.approx((3.6, 9.0))
    assert "clients" in finding.fix.code
    assert "ready.wait()" in _found(pausing(ran_out=0)).fix.code


@pytest.mark.parametrize(
    "changes",
    [{"awaited": 0.05}, {"otherwise": 0.9}, {"ran_out": 3}],
    ids=["seldom", "it always pauses", "too few to tell"],
)
def test_a_pause_that_nobody_waits_for_is_left_alone(changes: dict[str, Any]) -> None:
    assert "PD06.awaited-pause" not in ids(_examined(pausing(**changes)))


def test_it_is_told_beside_what_threads_cost_otherwise() -> None:
    waits = actors_behind_a_lock().lock_waits
    assert not isinstance(waits, Missing)
    busy = polling().lock_waits
    assert not isinstance(busy, Missing)
    both = replace(waits, busy=busy.busy)
    told = ids(_examined(polling(lock_waits=both, concurrency=healthy().concurrency)))
    assert "PD06.busy-waiting" in told
