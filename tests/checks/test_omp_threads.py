from __future__ import annotations

from typing import Any

import pytest
from ill_runs.omp_threads import crowded_ranks, pinned_process, pinned_workers, timed_threads
from ills import ILL
from perfdoctor.checks.omp_threads import CHECK
from samples import asked, healthy, ids, is_clear, number, only, with_

from perfdoctor.diagnosis.findings import Confidence, Location, Part, Severity
from perfdoctor.diagnosis.outcomes import OutcomeKind
from perfdoctor.evidence.model import Evidence, Missing, Site

_examined, _found = asked(CHECK)


def _name(evidence: Evidence) -> str:
    return _found(evidence).id.partition(".")[2]


@pytest.mark.parametrize("part", ["step", "threads"])
def test_without_steps_or_threads_nothing_is_claimed(part: str) -> None:
    outcome = _examined(with_(healthy(), **{part: Missing("it was not seen")}))
    assert outcome.kind is OutcomeKind.CANNOT_TELL
    assert "it was not seen" in outcome.reason


# ---------------------------------------------------------------------------------------------------------
# By timing, not by setting


def test_sixteen_threads_on_two_idle_cpus_are_fine_when_they_cost_nothing() -> None:
    """They were measured to cost 4 %."""
    outcome = _examined(timed_threads(16, {1: 10.0, 2: 5.8, 16: 6.0}))
    assert is_clear(outcome)
    assert number(outcome, "timed") == pytest.approx(6.0 / 5.8)


def test_sixteen_threads_that_cost_are_too_many() -> None:
    finding = _found(ILL["PD13.too-many-threads"])
    assert finding.id == "PD13.too-many-threads"
    assert finding.severity is Severity.ERROR
    assert "OMP_NUM_THREADS=2" in finding.fix.code
    assert finding.savings.part is Part.COMPUTE


def test_ranks_with_more_threads_than_cpus_are_found_by_their_wait_where_timings_show_nothing() -> None:
    finding = _found(crowded_ranks(6.0))
    assert finding.id == "PD13.too-many-threads"
    assert number(finding, "waited_ms") == pytest.approx(6.0)
    assert (finding.savings.low_ms, finding.savings.high_ms) == (pytest.approx(6.0), pytest.approx(15.0))
    assert "OMP_NUM_THREADS=1" in finding.fix.code


@pytest.mark.parametrize(
    "changes",
    [
        {"waited_ms": 2.4},
        {"step__run_delay_ms": Missing("no schedstat")},
        {"host__others_cpus": 1.0},
        {"job__local_ranks": 1, "job__world_size": 1},
        {"threads__intra_op": 1},
    ],
    ids=["short", "unknown", "other-processes", "one-rank", "they-fit"],
)
def test_ranks_that_wait_little_or_for_others_have_threads_enough(changes: dict[str, Any]) -> None:
    assert "PD13.too-many-threads" not in ids(_examined(crowded_ranks(**changes)))


def test_threads_are_too_many_for_small_operators_even_on_idle_cpus() -> None:
    finding = _found(timed_threads(4, {1: 2.0, 4: 5.0}, cpus=4))
    assert finding.id == "PD13.too-many-threads"
    assert "operators this small" in finding.message


def test_beside_other_processes_fewer_threads_are_an_opportunity() -> None:
    """Each of them that takes a CPU makes the team wait, and may be gone the next time."""
    finding = _found(timed_threads(4, {1: 2.0, 4: 5.0}, cpus=4, host__others_cpus=0.3))
    assert finding.id == "PD13.too-many-threads" and finding.is_opportunity
    assert "other processes ran meanwhile" in finding.reasoning


@pytest.mark.parametrize(
    ("timing", "severity"),
    [(9.1, None), (8.8, Severity.WARNING), (7.6, Severity.WARNING), (7.3, Severity.ERROR)],
)
def test_another_number_of_threads_must_save_a_tenth_of_the_step(timing: float, severity: Severity | None) -> None:
    outcome = _examined(timed_threads(2, {1: timing, 2: 10.0}))
    assert [finding.severity for finding in outcome.findings] == ([severity] if severity else [])


def test_waiting_for_data_gains_nothing_from_threads() -> None:
    """Half of the gain is left when half of the step is waiting."""
    evidence = timed_threads(2, {1: 8.5, 2: 10.0}, step__parts__input_wait=12.5, step__parts__backward=1.8)
    assert is_clear(_examined(evidence))


def test_the_gain_is_that_of_the_timed_operators_or_half_of_it() -> None:
    saved = _found(timed_threads(2, {1: 5.0, 2: 10.0})).savings
    assert saved.high_ms == pytest.approx(0.5 * (25.0 - 0.3 - 0.1))
    assert saved.low_ms == pytest.approx(saved.high_ms / 2)


def test_a_small_gain_is_less_certain() -> None:
    assert _found(timed_threads(2, {1: 5.0, 2: 10.0})).confidence is Confidence.HIGH
    assert _found(timed_threads(2, {1: 8.0, 2: 10.0})).confidence is Confidence.MEDIUM


# ---------------------------------------------------------------------------------------------------------
# Too few


def test_more_threads_than_the_job_chose_are_an_opportunity_while_cpus_idle() -> None:
    finding = _found(ILL["PD13.idle-cpus"])
    assert finding.is_opportunity and number(finding, "best") == 2
    assert finding.fix.remedies == ("threads=2",)


@pytest.mark.parametrize("host", [{"host__idle_cpus": 0.3}, {"host": Missing("no sample")}])
def test_where_no_cpu_idles_fewer_threads_are_the_jobs_own_choice(host: dict[str, Any]) -> None:
    outcome = _examined(timed_threads(1, {1: 10.0, 2: 6.0}, **host))
    assert is_clear(outcome)
    assert number(outcome, "timed") == pytest.approx(10.0 / 6.0)  # and the timing of it is shown


def test_the_single_thread_that_torchrun_sets_is_named() -> None:
    finding = _found(ILL["PD13.torchrun-single-thread"])
    assert finding.id == "PD13.torchrun-single-thread"
    assert "OMP_NUM_THREADS=4 torchrun" in finding.fix.code
    assert "per rank" in finding.fix.text


def test_ranks_that_share_the_cpus_get_no_thread_of_the_others() -> None:
    """One rank alone would be faster with two threads; two ranks on two CPUs would fight."""
    evidence = timed_threads(1, {1: 10.0, 2: 5.5}, threads__torchrun_default=True, job__local_ranks=2)
    assert is_clear(_examined(evidence))


def test_a_quota_is_not_exceeded_by_the_advice() -> None:
    timings = {1: 10.0, 2: 6.0, 48: 3.0}
    evidence = timed_threads(1, timings, cpus=48, machine__quota_cpus=2.0, threads__torchrun_default=True)
    assert number(_found(evidence), "best") == 2


# ---------------------------------------------------------------------------------------------------------
# Too many, and why


def test_threads_beyond_a_quota_are_named_by_the_throttling() -> None:
    finding = _found(ILL["PD13.more-threads-than-quota"])
    assert finding.id == "PD13.more-threads-than-quota"
    assert number(finding, "usable") == 2.0
    assert number(finding, "throttled") == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("throttled", "name"),
    [(0.06, "more-threads-than-quota"), (0.04, "too-many-threads"), (Missing("no quota"), "too-many-threads")],
)
def test_without_throttling_a_quota_is_not_blamed(throttled: object, name: str) -> None:
    assert _name(with_(ILL["PD13.more-threads-than-quota"], host__throttled_share=throttled)) == name


def test_a_busy_neighbour_makes_threads_spin() -> None:
    finding = _found(ILL["PD13.spin-collapse"])
    assert finding.id == "PD13.spin-collapse"
    assert "OMP_WAIT_POLICY=PASSIVE" in finding.fix.code
    assert number(finding, "slower") == pytest.approx(31.0)
    assert number(finding, "delay") == pytest.approx(0.4)


@pytest.mark.parametrize(("delay", "name"), [(0.11, "spin-collapse"), (0.09, "too-many-threads")])
def test_spinning_needs_contended_cpus(delay: float, name: str) -> None:
    assert _name(with_(ILL["PD13.spin-collapse"], host__job_run_delay_share=delay)) == name


@pytest.mark.parametrize(
    ("changes", "whom"),
    [({}, "other processes"), ({"host__others_cpus": 0.1}, "own other threads"), ({"host": Missing("-")}, "other")],
)
def test_whom_the_threads_fight_with_is_said(changes: dict[str, Any], whom: str) -> None:
    evidence = with_(ILL["PD13.spin-collapse"], step__run_delay_ms=10.0, **changes)
    assert whom in _found(evidence).message


def test_more_threads_than_cpus_do_not_spin_long() -> None:
    """libgomp spins 300,000 turns only while there are no more threads than CPUs."""
    assert _name(timed_threads(4, {1: 10.0, 4: 30.0}, host__job_run_delay_share=0.4)) == "too-many-threads"


@pytest.mark.parametrize(
    ("host", "run_delay_ms", "name"),
    [
        (Missing("no samples"), 10.0, "spin-collapse"),
        (Missing("no samples"), 0.1, "too-many-threads"),
        (Missing("no samples"), Missing("no schedstat"), "too-many-threads"),
    ],
)
def test_without_the_monitor_the_training_thread_tells_of_contention(
    host: object, run_delay_ms: object, name: str
) -> None:
    evidence = with_(ILL["PD13.spin-collapse"], host=host, step__run_delay_ms=run_delay_ms)
    assert _name(evidence) == name


# ---------------------------------------------------------------------------------------------------------
# Without timings


@pytest.mark.parametrize("timings", [{}, {1: 10.0}])
def test_threads_that_never_waited_are_clear_without_a_timing(timings: dict[int, float]) -> None:
    outcome = _examined(timed_threads(2, timings))
    assert is_clear(outcome)
    assert "none of them waited" in outcome.reason


def test_one_thread_a_rank_waits_for_no_other_even_beside_neighbours() -> None:
    outcome = _examined(timed_threads(1, {}, host__job_run_delay_share=0.5))
    assert is_clear(outcome)
    assert "no thread waits for another" in outcome.reason


@pytest.mark.parametrize(
    "changes",
    [
        {"host__job_run_delay_share": 0.2},
        {"threads__intra_op": 16},
        {"host": Missing("no samples"), "step__run_delay_ms": Missing("no schedstat")},
    ],
)
def test_contended_or_unseen_threads_cannot_be_judged_without_a_timing(changes: dict[str, Any]) -> None:
    assert _examined(timed_threads(2, {}, **changes)).kind is OutcomeKind.CANNOT_TELL


# ---------------------------------------------------------------------------------------------------------
# Workers


def test_workers_bound_to_one_cpu_are_found_with_the_variable() -> None:
    finding = _found(ILL["PD13.workers-pinned"])
    assert finding.id == "PD13.workers-pinned"
    assert finding.savings.part is Part.INPUT_WAIT
    assert "OMP_PROC_BIND" in str(finding.evidence)
    assert finding.location is not None and finding.location.line == 12


@pytest.mark.parametrize(
    "changes",
    [
        {"threads__variables": (("OMP_NUM_THREADS", "1"),)},
        {"loader__worker_threads__affinity_cpus": 4},
        {"loader__worker_threads__distinct_affinities": 2},
        {"loader__worker_threads": Missing("no worker was seen")},
        {"loaders": Missing("not seen")},
        {"threads__launch_affinity_cpus": 1},  # there was only one to begin with
    ],
)
def test_workers_with_room_or_of_their_own_choice_are_fine(changes: dict[str, Any]) -> None:
    assert is_clear(_examined(with_(pinned_workers(), **changes)))


@pytest.mark.parametrize(("wait_ms", "count"), [(2.6, 0), (2.7, 1)])
def test_pinned_workers_that_keep_up_are_fine(wait_ms: float, count: int) -> None:
    assert len(_examined(pinned_workers(wait_ms)).findings) == count


def test_threads_and_workers_are_two_findings() -> None:
    evidence = with_(pinned_workers(), ops=timed_threads(2, {1: 5.0, 2: 10.0}).ops, threads__intra_op=2)
    assert ids(_examined(evidence)) == ["PD13.too-many-threads", "PD13.workers-pinned"]


def test_threads_that_a_line_set_are_found_there() -> None:
    evidence = timed_threads(8, {1: 10.0, 8: 40.0}, cpus=2)
    assert _found(evidence).location is None
    finding = _found(with_(evidence, threads__set_at=Site("train.py", 38, "main")))
    assert finding.location == Location("train.py", 38, "main")


# ---------------------------------------------------------------------------------------------------------
# A thread that keeps to some of its CPUs


def test_a_training_thread_that_keeps_off_idle_cpus_is_told_at_the_line_that_chose_them() -> None:
    finding = only(_examined(pinned_process()))
    assert finding.id == "PD13.pinned-process"
    assert finding.location is not None and (finding.location.file, finding.location.line) == ("record.py", 48)
    # 22 of the 25 ms are passes: at most half of them is spared.
    assert 0 < finding.savings.low_ms < finding.savings.high_ms <= 11.0


def test_ranks_that_keep_to_one_cpu_are_told_to_take_their_own() -> None:
    alone, several = (only(_examined(with_(pinned_process(), job__local_ranks=ranks))).fix for ranks in (1, 2))
    assert "LOCAL_RANK" in several.code and "by its `LOCAL_RANK`" in several.text
    assert "LOCAL_RANK" not in alone.code


def test_threads_that_share_one_cpu_because_a_variable_binds_them_are_told_with_it() -> None:
    crowded = timed_threads(2, {1: 2.0, 2: 10.0}, cpus=2)
    evidence = with_(
        pinned_process(threads__variables=(("GOMP_CPU_AFFINITY", "0"),), threads__intra_op=2), ops=crowded.ops
    )
    finding = only(_examined(evidence))
    assert finding.id == "PD13.pinned-process" and finding.fix.code == "unset GOMP_CPU_AFFINITY"
    # One thread alone takes a fifth of what the two take.
    assert finding.savings.low_ms > 11.0 and "which wait for each other" in finding.reasoning


@pytest.mark.parametrize(
    "changes",
    [
        {"cpus": 2},
        {"launch": 1},
        {"cpus": 0},
        {"idle": 0.2},
        {"step__parts__forward": 0.0, "step__parts__backward": 1.0},
    ],
)
def test_other_cpus_that_are_not_there_or_in_use_are_none_to_train_on(changes: dict[str, Any]) -> None:
    assert "PD13.pinned-process" not in ids(_examined(pinned_process(**changes)))
