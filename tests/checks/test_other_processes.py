from __future__ import annotations

import pytest
from ill_runs.other_processes import (
    asks_a_program,
    asks_environments,
    crowded,
    polled,
    pool_for_each_batch,
    shared_gpu,
    throttled,
)
from ills import ILL
from perfdoctor.checks.other_processes import CHECK
from samples import asked, healthy, ids, is_clear, number, on_gpu, with_

from perfdoctor.diagnosis.findings import Confidence, Finding, Severity
from perfdoctor.diagnosis.outcomes import OutcomeKind
from perfdoctor.evidence.model import Evidence, Helper, Missing, Neighbour
from perfdoctor.recording.base import Site
from perfdoctor.report import wording

_examined, _found = asked(CHECK)


def _message(finding: Finding) -> str:
    return wording.fill(finding.message, finding.evidence)


@pytest.mark.parametrize("part", ["step", "host", "step__run_delay_ms"])
def test_without_measurements_nothing_is_claimed(part: str) -> None:
    outcome = _examined(with_(healthy(), **{part: Missing("it was not seen")}))
    assert outcome.kind is OutcomeKind.CANNOT_TELL
    assert "it was not seen" in outcome.reason


# ---------------------------------------------------------------------------------------------------------
# The CPUs


def test_a_neighbour_is_named_with_what_it_costs() -> None:
    finding = _found(crowded(8.0))
    assert "stress-ng (pid 4711, user bob)" in _message(finding)
    assert finding.confidence is Confidence.HIGH
    assert number(finding, "cost_ms") == pytest.approx(8.0)
    assert finding.savings.ceiling_ms == pytest.approx(8.0, rel=0.01)
    assert finding.savings.low_ms == pytest.approx(5.6, rel=0.01)


def test_what_a_neighbour_takes_of_collections_is_theirs_to_save() -> None:
    calm = crowded(8.0)
    assert not isinstance(calm.step, Missing)
    step = calm.step
    half = step.step_ms - step.parts.input_wait
    collecting = with_(calm, step__parts=with_(step.parts, gc=half / 2))
    finding = _found(collecting)
    assert finding.savings.ceiling_ms == pytest.approx(number(finding, "cost_ms") / 2)


def test_of_several_programs_none_is_blamed_alone() -> None:
    tests, build = Neighbour(12, "python -m pytest", "ann", 0.4, 9), Neighbour(7, "make", "bob", 0.3)
    several = crowded(others=1.0, host__neighbours=(tests, build, Neighbour(9, "git", "bob", 0.1)))
    owner = "python -m pytest (9 processes, the busiest pid 12, user ann), make (pid 7, user bob) and others"
    assert f"competes for CPU with {owner}: up" in _message(_found(several))


@pytest.mark.parametrize("changes", [{"host__neighbours": ()}, {"host__others_cpus": 5.0}])
def test_an_owner_that_cannot_be_seen_is_outside(changes: dict[str, object]) -> None:
    assert "processes outside this container" in _message(_found(crowded(**changes)))


@pytest.mark.parametrize(("delay_ms", "count"), [(1.0, 0), (2.0, 0), (3.0, 1)])
def test_contention_counts_by_the_time_without_a_cpu(delay_ms: float, count: int) -> None:
    """2 ms of 25 are 8 % of the step, but below 10 % of the job's runnable time."""
    assert len(_examined(crowded(delay_ms)).findings) == count


def test_a_thread_that_computes_lost_no_more_than_the_rest_of_its_step() -> None:
    """Run delay is counted over all steps, hiccups included: of 25 ms with 20 on a CPU, 27 cannot be lost."""
    finding = _found(crowded(27.0, step__cpu_ms=20.0, host__job_run_delay_share=0.3))
    assert finding.savings.ceiling_ms == pytest.approx(24.7 + 0.05 - 20.0, abs=0.1)
    assert is_clear(_examined(crowded(27.0, step__cpu_ms=24.5)))


@pytest.mark.parametrize("changes", [{"others": 0.2}, {"host__idle_cpus": 0.8}])
def test_a_job_that_fights_with_itself_is_not_the_neighbours_fault(changes: dict[str, object]) -> None:
    assert is_clear(_examined(crowded(**changes)))  # type: ignore[arg-type]


def test_own_threads_that_wait_for_each_other_are_said_to() -> None:
    outcome = _examined(crowded(others=0.05, host__idle_cpus=0.1))
    assert "compete for CPU with each other" in outcome.reason


def test_what_the_job_wants_beyond_all_cpus_is_its_own() -> None:
    """Eight threads' worth of demand on two CPUs: most of the delay would stay without the small neighbour."""
    crowd = crowded(8.0, others=0.4, host__job_cpus=1.6, host__idle_cpus=0.0, host__job_run_delay_share=0.8)
    outcome = _examined(crowd)
    assert not outcome.findings or outcome.findings[0].savings.ceiling_ms < 1.0


def test_a_spinning_thread_hides_the_delay_of_its_team() -> None:
    team = crowded(0.5, host__job_run_delay_share=0.4, threads__intra_op=2)
    finding = _found(team)
    assert finding.confidence is Confidence.LOW
    assert finding.savings.low_ms == 0
    assert is_clear(_examined(with_(team, threads__intra_op=1)))


def test_without_schedstat_of_all_threads_the_training_thread_speaks() -> None:
    assert _found(crowded(host__job_run_delay_share=Missing("no schedstat"))).id == "PD12.cpu-contention"


def test_a_quota_is_found_with_the_time_it_stops_the_job() -> None:
    finding = _found(throttled())
    assert finding.savings.ceiling_ms == pytest.approx(8.0)
    by_group = _found(throttled(delay_ms=0.0, host__throttled_time_share=2.0))
    assert by_group.savings.ceiling_ms == pytest.approx(0.5 * 25.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"periods": 0.2},
        {"delay_ms": 0.0, "host__throttled_time_share": 0.0},
        {"threads__intra_op": 4},  # more threads than the quota: PD13's
        {"host__throttled_share": Missing("no group")},
    ],
)
def test_throttling_without_cost_or_by_the_jobs_own_threads_is_no_finding(changes: dict[str, float]) -> None:
    assert "PD12.throttled" not in ids(_examined(throttled(**changes)))


@pytest.mark.parametrize(("threads", "count"), [(2, 1), (3, 0)])
def test_a_quota_of_one_and_a_half_is_not_the_fault_of_two_threads(threads: int, count: int) -> None:
    """PD13 would not advise fewer: the same rule says whose it is."""
    crowd = throttled(machine__quota_cpus=1.5, threads__intra_op=threads)
    assert ids(_examined(crowd)).count("PD12.throttled") == count


def test_a_neighbour_is_billed_only_for_what_the_quota_did_not_take() -> None:
    """A team too large for its quota is PD13's; of the rest of the lack the neighbour has the half that it took."""
    both = crowded(
        16.0,
        step__cpu_ms=8.0,
        host__job_cpus=1.0,
        host__job_run_delay_share=0.5,
        host__throttled_share=0.6,
        host__throttled_time_share=0.5,
        machine__quota_cpus=1.0,
        threads__intra_op=2,
    )
    assert number(_found(both), "cost_ms") == pytest.approx(8.0)


@pytest.mark.parametrize(("steal", "count"), [(0.09, 0), (0.2, 1)])
def test_stolen_time_is_the_hypervisors(steal: float, count: int) -> None:
    outcome = _examined(with_(healthy(), host__steal_share=steal))
    assert len(outcome.findings) == count
    if count:
        assert "hypervisor" in outcome.findings[0].message


# ---------------------------------------------------------------------------------------------------------
# Memory


def test_short_memory_costs_at_most_the_blocked_time() -> None:
    finding = _found(with_(ILL["PD12.memory-pressure"], host__swap_in_bytes=0.0))
    assert finding.savings.ceiling_ms == pytest.approx(0.3 * 25.0)
    busy = with_(ILL["PD12.memory-pressure"], step__cpu_ms=24.4)
    assert is_clear(_examined(busy))


@pytest.mark.parametrize(("job_bytes", "text"), [(12 << 30, "itself holds"), (2 << 30, "other processes")])
def test_whose_memory_it_is_is_said(job_bytes: int, text: str) -> None:
    finding = _found(with_(ILL["PD12.memory-pressure"], host__peak_job_bytes=job_bytes))
    assert text in finding.reasoning


def test_swapping_alone_counts_by_its_pages() -> None:
    evidence = with_(
        ILL["PD12.memory-pressure"],
        host__memory_pressure_share=Missing("no PSI"),
        host__swap_in_bytes=4096 * 5000.0,
        host__seconds=1.0,
    )
    assert _found(evidence).savings.ceiling_ms == pytest.approx(10.3, abs=0.5)  # capped by the blocked time
    assert is_clear(_examined(with_(evidence, host__swap_in_bytes=100_000.0)))


# ---------------------------------------------------------------------------------------------------------
# The GPU


def test_a_shared_gpu_is_told_by_utilisation_beyond_the_jobs_own() -> None:
    finding = _found(shared_gpu())
    assert "pid 990" in _message(finding)
    assert number(finding, "cost_ms") == pytest.approx((0.95 - 12.0 / 25.0) * 25.0)


def test_in_a_container_the_other_user_of_a_gpu_has_no_name() -> None:
    finding = _found(shared_gpu(host__gpu_other_processes=()))
    assert "outside this container" in _message(finding)
    assert finding.confidence is Confidence.LOW


@pytest.mark.parametrize(
    "changes", [{"utilisation": 0.6}, {"busy_ms": 23.0}, {"host__gpu_utilisation": Missing("MIG")}]
)
def test_a_gpu_of_ones_own_is_not_shared(changes: dict[str, float]) -> None:
    assert is_clear(_examined(shared_gpu(**changes)))


@pytest.mark.parametrize(("times", "clock", "count"), [(0.1, 0.5, 0), (0.9, 0.97, 0), (0.9, 0.6, 1)])
def test_clocks_held_down_count_by_the_time_they_cost(times: float, clock: float, count: int) -> None:
    evidence = on_gpu(host__gpu_throttled_share=times, host__gpu_throttled_clock=clock)
    assert len(_examined(evidence).findings) == count


# ---------------------------------------------------------------------------------------------------------
# What the loop starts itself


def test_a_pool_for_each_batch_is_named_by_its_line_with_the_page_faults_that_it_brings() -> None:
    finding = _found(pool_for_each_batch(4.0))
    assert finding.id == "PD12.started-each-step"
    assert finding.location is not None and finding.location.line == 40
    assert finding.savings.low_ms == pytest.approx(3.2)
    assert finding.savings.high_ms == pytest.approx(4.0 + 40 * 500 / 1e6)


def test_a_program_that_is_asked_in_each_step_is_named_by_its_line() -> None:
    finding = _found(asks_a_program(4.0))
    assert finding.id == "PD12.programs-in-loop"
    assert finding.location is not None and finding.location.line == 52
    assert "4.00 ms per step (16 %)" in _message(finding)


def test_brief_messages_to_processes_of_its_own_are_an_opportunity_where_most_of_them_go() -> None:
    finding = _found(asks_environments())
    assert finding.id == "PD12.messages-in-loop" and finding.severity is Severity.NOTE
    assert finding.location is not None and finding.location.line == 60
    assert "16 messages per step" in _message(finding) and "4.00 ms (16 %)" in _message(finding)
    assert (finding.savings.low_ms, finding.savings.high_ms) == (pytest.approx(1.6), pytest.approx(4.0))


@pytest.mark.parametrize("calls", [1.0, 6.0])
def test_long_messages_and_single_ones_are_waits_for_what_is_computed(calls: float) -> None:
    assert is_clear(_examined(asks_environments(calls=calls)))


@pytest.mark.parametrize(
    "evidence",
    [pool_for_each_batch(1.0), asks_a_program(1.0), pool_for_each_batch(4.0, calls=0.01)],
    ids=["cheap pool", "cheap program", "a pool that is made and ended once"],
)
def test_what_is_cheap_or_done_once_is_no_finding(evidence: Evidence) -> None:
    assert is_clear(_examined(evidence))


@pytest.mark.parametrize(("threads", "most_ms"), [(1, 8.0), (2, 0.8 * 24.7)])
def test_a_helper_that_never_sleeps_is_an_opportunity_by_what_the_job_waits_for_a_cpu(
    threads: int, most_ms: float
) -> None:
    finding = _found(polled(8.0, threads))
    assert (finding.id, finding.severity) == ("PD12.busy-helper", Severity.NOTE)
    assert "python (pid 5120), which the job started, never sleeps, while training" in _message(finding)
    assert finding.savings.low_ms == pytest.approx(5.6)
    assert finding.savings.high_ms == pytest.approx(most_ms, rel=0.01)


def test_a_helper_that_works_in_bursts_is_told_so_and_makes_no_team_wait_for_most_of_a_step() -> None:
    finding = _found(polled(8.0, 2, host__helpers=(Helper(5120, "python", 0.4, False),)))
    assert (finding.id, finding.severity) == ("PD12.busy-helper", Severity.NOTE)
    assert "works in bursts" in _message(finding) and "less often" in finding.fix.text
    assert finding.savings.high_ms == pytest.approx(number(finding, "cost_ms"))


def test_a_helper_is_told_at_the_loop_it_runs_and_else_at_the_line_that_starts_it() -> None:
    started, does = Site("train.py", 40, "main"), Site("feed.py", 7, "feed")
    for lines, at in (((started, does), 7), ((started, Missing("")), 40), ((Missing(""), Missing("")), None)):
        finding = _found(polled(8.0, 2, host__helpers=(Helper(5120, "python", 0.9, True, *lines),)))
        assert (finding.location.line if finding.location is not None else None) == at
        told = [one.value for one in finding.evidence if one.name == "started_at"]
        assert told == (["train.py:40"] if at is not None else [])


@pytest.mark.parametrize(
    "changes",
    [{"host__helpers": ()}, {"host__idle_cpus": 0.6}, {"host__job_run_delay_share": 0.05}],
    ids=["they sleep", "there are CPUs", "nobody waits"],
)
def test_helpers_that_take_nothing_from_training_are_no_finding(changes: dict[str, object]) -> None:
    assert is_clear(_examined(polled(**changes)))
