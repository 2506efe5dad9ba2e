"""Each slow computation is blamed on its own cause."""

from __future__ import annotations

from typing import Any

import pytest
from dividing import missing, rest
from ill_runs.etl import fetch, waiting
from ill_runs.other_processes import crowded, throttled
from samples import healthy, step, with_

from perfdoctor.evidence.causes import (
    compute,
    lack_of_cpu,
    thread_gain,
)
from perfdoctor.evidence.model import WITHOUT_CPU, Cause, Evidence, Missing, Parts

GONE = Missing("it was not seen")


@pytest.mark.parametrize(
    ("evidence", "cause", "ms"),
    [
        (healthy(), Cause.RUNNING, 24.7 - 0.1 - 0.02),
        (crowded(8.0, step__cpu_ms=15.0), Cause.NEIGHBOURS, 8.0),
        (crowded(8.0, others=0.2, step__cpu_ms=15.0), Cause.OWN_THREADS, 8.0),
        (throttled(delay_ms=0.0, host__throttled_time_share=2.0, step__cpu_ms=10.0), Cause.QUOTA, 12.5),
        (with_(healthy(), step__cpu_ms=14.7), Cause.BLOCKED, 24.7 - 0.25 - 14.7),
        (with_(healthy(), memory__minor_faults=20_000.0, memory__system_cpu_ms=9.0), Cause.PAGE_FAULTS, 9.0),
        (with_(healthy(), memory__minor_faults=8_000.0, memory__system_cpu_ms=9.0), Cause.PAGE_FAULTS, 4.0),
        (with_(healthy(), step=step(Parts(forward=8.0, gc=2.0))), Cause.GC, 2.0),
    ],
)
def test_slow_compute_is_divided_by_what_the_thread_did(evidence: Evidence, cause: Cause, ms: float) -> None:
    assert rest(evidence).ms(cause) == pytest.approx(ms)


def test_the_making_of_batches_in_the_training_thread_is_not_compute() -> None:
    """Of 45 ms of CPU time and 6 ms of delay, making batches has 25 and 4."""
    made = waiting(30.0, fetch((29.0, 25.0), (0.0, 0.0), run_delay_ms=4.0), train_ms=22.0, num_workers=0)
    found = rest(with_(made, step__cpu_ms=45.0, step__run_delay_ms=6.0))
    assert found.whole_ms == pytest.approx(22.0)
    assert found.ms(Cause.RUNNING) == pytest.approx(20.0)
    assert found.ms(*WITHOUT_CPU) == pytest.approx(2.0)


def test_delay_that_making_batches_had_is_not_that_of_compute() -> None:
    made = waiting(30.0, fetch((29.0, 25.0), (0.0, 0.0), run_delay_ms=4.0), train_ms=22.0, num_workers=0)
    found = rest(with_(made, step__cpu_ms=40.0, step__run_delay_ms=6.0))
    assert (found.ms(*WITHOUT_CPU), found.ms(Cause.BLOCKED)) == (pytest.approx(2.0), pytest.approx(5.0))
    found = rest(with_(made, step__cpu_ms=40.0, step__run_delay_ms=3.0))
    assert (found.ms(*WITHOUT_CPU), found.ms(Cause.BLOCKED)) == (pytest.approx(0.0), pytest.approx(7.0))


def test_page_faults_take_no_more_than_the_thread_was_on_a_cpu() -> None:
    """The kernel's time is that of all threads."""
    found = rest(with_(healthy(), memory__minor_faults=20_000.0, memory__system_cpu_ms=9.0, step__cpu_ms=5.0))
    assert found.ms(Cause.PAGE_FAULTS) == pytest.approx(4.9)


def test_without_run_delay_time_off_the_cpu_stays_unexplained() -> None:
    found = rest(with_(healthy(), step__run_delay_ms=GONE, step__cpu_ms=14.7))
    assert {Cause.NO_CPU, Cause.BLOCKED} <= missing(found.shares)
    # 0.1 ms of the CPU time went into collections.
    assert found.ms(Cause.RUNNING, Cause.PAGE_FAULTS) == pytest.approx(14.6)
    assert found.ms(Cause.UNEXPLAINED) == pytest.approx(24.7 - 14.7)


def test_a_group_that_was_stopped_needs_no_run_delay_to_be_seen() -> None:
    """Two of four CPUs' time for 25 ms."""
    stopped = throttled(host__throttled_time_share=2.0, step__run_delay_ms=GONE, step__cpu_ms=10.0)
    found = rest(stopped)
    assert found.ms(Cause.QUOTA) == pytest.approx(12.5)
    assert Cause.NO_CPU in missing(found.shares)
    with_delay = rest(with_(stopped, step__run_delay_ms=4.0, host__job_run_delay_share=0.0))
    assert with_delay.ms(Cause.QUOTA) == pytest.approx(12.5)


def test_delay_has_only_the_room_that_cpu_time_leaves() -> None:
    """It is counted over all steps, with hiccups and late awakenings from the wait: 20 ms of it leave 14.9 running."""
    found = rest(crowded(20.0, step__cpu_ms=15.0))
    assert found.ms(Cause.RUNNING, Cause.PAGE_FAULTS) == pytest.approx(14.9)
    assert found.ms(Cause.NEIGHBOURS) == pytest.approx(24.7 - 15.0)


def test_cpu_time_that_receiving_batches_may_have_had_is_unexplained() -> None:
    """Receiving is timed by the clock alone: of 18 ms on the CPU it may have had 5."""
    evidence = with_(crowded(1.0), step=step(Parts(input_wait=10.0, forward=20.0), cpu_ms=18.0, run_delay_ms=1.0))
    found = rest(evidence, received_ms=5.0)
    assert found.ms(Cause.RUNNING, Cause.PAGE_FAULTS) == pytest.approx(13.0)
    assert found.ms(Cause.UNEXPLAINED) == pytest.approx(5.0)
    assert found.ms(Cause.BLOCKED) == pytest.approx(20.0 - 18.0 - found.ms(*WITHOUT_CPU))
    assert found.ms(*WITHOUT_CPU) == pytest.approx(1.0)


@pytest.mark.parametrize("changes", [{"memory": GONE}, {"machine__page_fault_ns": None}])
def test_page_faults_without_a_timing_stay_in_the_cpu_time(changes: dict[str, Any]) -> None:
    found = rest(with_(healthy(), **changes))
    assert Cause.PAGE_FAULTS in missing(found.shares)
    assert found.ms(Cause.RUNNING) == pytest.approx(24.7 - 0.1)


def test_without_a_monitor_the_lack_has_no_owner() -> None:
    assert rest(with_(crowded(8.0), host=GONE, step__cpu_ms=15.0)).ms(Cause.NO_CPU) == pytest.approx(8.0)


def test_without_a_step_there_is_nothing_to_divide() -> None:
    evidence = with_(healthy(), step=GONE)
    assert compute(evidence) == GONE
    assert lack_of_cpu(evidence) == GONE
    assert thread_gain(evidence) == GONE
