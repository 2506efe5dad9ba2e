"""The overlap model of loading, resource by resource."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ill_runs.etl import fetch, waiting, waiting_for_each
from samples import with_

from perfdoctor.evidence.causes import Overlap, overlap
from perfdoctor.evidence.causes.played import Turn
from perfdoctor.evidence.model import Evidence, Fetch, Missing


def _model(**changes: Any) -> Overlap:
    """A loop that trains for 10 ms and makes its batches, 20 ms each, in between, on eight CPUs."""
    usual: dict[str, Any] = {
        "step_ms": 30.0,
        "wait_ms": 20.0,
        "make_ms": 20.0,
        "make_cpu_ms": 20.0,
        "train_ms": 10.0,
        "train_cpu_ms": 10.0,
        "usable_cpus": 8.0,
        "handover_ms": (0.3, 2.0),
    }
    return Overlap(**{**usual, **changes})


@pytest.mark.parametrize(
    ("workers", "changes", "floor"),
    [
        (1, {}, 20.0),  # one worker makes a batch in 20 ms
        (4, {}, 10.0),  # four are quicker than training
        (4, {"usable_cpus": 2.0}, 15.0),  # 30 ms of CPU on two CPUs
        (4, {"usable_cpus": 2.0, "make_cpu_ms": 1.0}, 10.0),  # waiting for storage takes none
        (4, {"usable_cpus": 0.5}, 30.0),  # a share of one CPU counts as one
    ],
)
def test_a_step_is_as_long_as_its_slowest_resource(workers: int, changes: dict[str, Any], floor: float) -> None:
    best, worst = _model(**changes).step_with(workers)
    assert best == pytest.approx(floor + 0.3)
    assert worst == pytest.approx(1.1 * floor + 2.0)


def test_what_workers_save_is_told_at_worst_and_at_best() -> None:
    assert _model().saved_with(4) == (pytest.approx(30 - 11 - 2), pytest.approx(30 - 10 - 0.3))
    low, high = _model(step_ms=10.2, wait_ms=0.2, make_ms=0.2, make_cpu_ms=0.2).saved_with(1)
    assert low < high < 0


@pytest.mark.parametrize(
    ("changes", "workers"),
    [
        ({}, 3),  # twice as long as training, and a fifth more for batches that take longer
        ({"make_ms": 9.0, "make_cpu_ms": 9.0}, 2),
        ({"make_ms": 2.0, "make_cpu_ms": 2.0}, 1),
        ({"usable_cpus": 2.0}, 1),  # training has the other one
        ({"usable_cpus": 2.0, "make_cpu_ms": 1.0}, 3),  # storage needs no CPU
        ({"make_ms": 1000.0, "make_cpu_ms": 1.0}, 16),
    ],
)
def test_workers_are_as_many_as_keep_up_and_have_cpus(changes: dict[str, Any], workers: int) -> None:
    assert _model(**changes).workers() == workers


def _of(made: Fetch, **changes: Any) -> Overlap:
    loader = {name: value for name, value in changes.items() if "__" not in name}
    evidence = with_(waiting(20.0, made, **loader), **{k: v for k, v in changes.items() if "__" in k})
    assert not isinstance(evidence.step, Missing) and not isinstance(evidence.loaders, Missing)
    return overlap(evidence, evidence.loaders[0], evidence.step, made)


def test_in_the_training_process_making_is_taken_off_the_cpu_time_of_training() -> None:
    assert _of(fetch((15.0, 15.0), (5.0, 5.0)), num_workers=0).train_cpu_ms == pytest.approx(5.0)
    assert _of(fetch((15.0, 15.0), (5.0, 5.0)), num_workers=1).train_cpu_ms == pytest.approx(5.0)


def test_threads_that_spin_need_no_more_cpu_than_there_is() -> None:
    model = _of(fetch(), step__process_cpu_ms=400.0)
    assert (model.train_ms, model.train_cpu_ms) == (pytest.approx(5.0), pytest.approx(10.0))


def test_waiting_for_a_cpu_is_not_work() -> None:
    model = _of(fetch((19.0, 10.0), (1.0, 1.0), run_delay_ms=9.0))
    assert (model.make_ms, model.make_cpu_ms) == (pytest.approx(11.0), pytest.approx(11.0))


def test_large_batches_take_longer_to_hand_over() -> None:
    assert _of(fetch(batch_bytes=0.0)).handover_ms == (pytest.approx(0.3), pytest.approx(2.0))
    assert _of(fetch(batch_bytes=100 << 20)).handover_ms == (pytest.approx(10.3), pytest.approx(52.0))


TEAM = {"usable_cpus": 2.0, "train_cpu_ms": 20.0}
"""Two threads on two CPUs."""


def test_a_worker_takes_a_cpu_from_a_team_of_threads() -> None:
    """Evenly shared CPUs would give 20 ms; the team keeps a seventh of its speed meanwhile, or nothing of it."""
    model = _model(**TEAM)
    assert model.is_crowded(1)
    assert model.step_with(1) == (pytest.approx(10 + 0.85 * 20 + 0.3), pytest.approx(1.25 * 30 + 2.0))


def test_collections_are_no_work_of_the_team() -> None:
    """On average training keeps 1.2 CPUs; while it computes it keeps both."""
    model = _model(train_ms=50.0, train_cpu_ms=60.0, alone_ms=40.0, usable_cpus=2.0)
    assert model.team == pytest.approx(2.0)
    assert model.is_crowded(1)
    best, worst = model.step_with(1)
    assert best == pytest.approx(20 + (10 - 0.15 * 20) + 40 + 0.3), "the worker makes its batch first"
    assert worst == pytest.approx(1.25 * 70 + 2.0)


def test_a_pause_every_fourth_step_leaves_the_worker_with_a_full_queue() -> None:
    """Two batches ahead are all that it makes during 160 ms; the three steps after them wait for the others."""
    turns = (Turn(10.0), Turn(10.0), Turn(10.0), Turn(10.0, 160.0))
    even = _model(train_ms=50.0, train_cpu_ms=50.0, alone_ms=40.0, make_ms=40.0, make_cpu_ms=40.0)
    assert even.step_with(1)[0] == pytest.approx(50.3)
    assert replace(even, turns=turns).step_with(1)[0] == pytest.approx(250 / 4 + 0.3, abs=0.5)


@pytest.mark.parametrize(
    "changes",
    [
        {"usable_cpus": 4.0},  # a CPU is left for the worker
        {"make_cpu_ms": 1.0},  # a worker that waits for storage takes none
        {"train_cpu_ms": 10.0},  # training has no team: the scheduler shares the CPUs
    ],
)
def test_what_has_its_cpus_is_not_crowded(changes: dict[str, Any]) -> None:
    assert not _model(**{**TEAM, **changes}).is_crowded(1)


def test_training_on_one_thread_leaves_a_cpu_for_the_worker() -> None:
    model = _model(**TEAM).with_one_thread(1.5)
    assert not model.is_crowded(1)
    assert model.step_with(1)[0] == pytest.approx(20.0 + 0.3)


# ---------------------------------------------------------------------------------------------------------
# Several loaders


def _of_first(evidence: Evidence) -> Overlap:
    """The model of the one that is waited for longest."""
    assert not isinstance(evidence.step, Missing) and not isinstance(evidence.loaders, Missing)
    first = evidence.loaders[0]
    assert not isinstance(first.fetch, Missing)
    return overlap(evidence, first, evidence.step, first.fetch)


SLOW = waiting(60.0, fetch((59.0, 59.0), (0.5, 0.5)), num_workers=0, cpus=8)


def test_the_wait_for_another_loader_stays_as_a_part_of_training_on_one_thread() -> None:
    model = _of_first(waiting_for_each(SLOW, waiting(20.0, fetch((19.0, 19.0), (0.5, 0.5)), num_workers=0)))
    assert (model.wait_ms, model.train_ms, model.alone_ms) == (pytest.approx(60), pytest.approx(30), pytest.approx(20))
    # Training keeps one CPU, and making the other's batches another 19.5 of the 20 ms.
    assert model.team == pytest.approx(1.0)
    assert model.step_with(2)[0] == pytest.approx(30.0 + 0.3, abs=0.1)


def test_a_team_is_no_smaller_for_a_loader_that_waits_for_storage() -> None:
    stored = waiting(20.0, fetch((19.0, 0.5), (0.5, 0.5)), num_workers=0)
    evidence = waiting_for_each(SLOW, stored)
    assert not isinstance(evidence.step, Missing)
    two_threads = with_(evidence, step__process_cpu_ms=20.0 + 59.5 + 1.0)
    assert _of_first(two_threads).team == pytest.approx(2.0)


def test_cpus_that_other_workers_keep_busy_are_not_for_more_of_them() -> None:
    """Two of the four make batches of 90 ms all the time, and are hardly waited for."""
    busy = waiting(1.0, fetch((180.0, 180.0), (0.5, 0.5)), empty_share=0.5, num_workers=2)
    evidence = with_(waiting_for_each(SLOW, busy), machine__affinity_cpus=4, machine__logical_cpus=4)
    model = _of_first(evidence)
    assert model.usable_cpus == pytest.approx(4.0 - 179.5 / 71.0)
    # And no step is shorter than what these workers take for one batch.
    assert model.step_with(4)[0] == pytest.approx(180.5 / 2 + 0.3, abs=0.1)


def test_one_loader_has_the_step_for_itself() -> None:
    model = _of_first(SLOW)
    assert (model.alone_ms, model.least_ms, model.usable_cpus) == (0.0, 0.0, 8.0)
