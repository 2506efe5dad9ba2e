"""Jobs that call models from several threads: they do the same, and who waited for whom is seen."""

from __future__ import annotations

import json

import pytest

from perfdoctor.recording.base import Site
from perfdoctor.recording.model import ProcessRecording
from perfdoctor.recording.process import ForwardsSeen

pytestmark = [pytest.mark.slow, pytest.mark.timeout(450)]

CALLS, THREADS = 400, 3
STYLES = (
    "shared",
    "training_mode",
    "graded",
    "locked",
    "fresh_threads",
    "warmed_up",
    "fed_by_a_loader",
    "one_after_another",
    "beside_training",
    "raising",
)


@pytest.fixture
def seen(observe):
    return observe("threads.py", *STYLES)


def total(process: ProcessRecording) -> ForwardsSeen:
    """All counters of a process in one."""
    records = process.forwards_seen
    names = ("calls", "overlapped", "waiters", "in_training", "eval_with_grad", "backwards")
    measured = {
        name: tuple(map(sum, zip(*(getattr(record, name) for record in records), strict=True)))
        for name in ("alone", "together")
    }
    return ForwardsSeen(
        step=records[-1].step,
        threads=max(record.threads for record in records),
        shared=max(record.shared for record in records),
        site=records[-1].site,
        **{name: sum(getattr(record, name) for record in records) for name in names},
        **measured,
    )


def test_every_job_does_the_same(seen):
    bare, probed = seen.bare.stdout.splitlines(), seen.probed.stdout.splitlines()
    assert [line for line in bare if "failed" in line] == []
    assert [line for line in probed if "process" not in line] == [line for line in bare if "process" not in line]
    assert seen.probed.stderr == seen.bare.stderr
    assert seen.probed.code == seen.bare.code == 0
    seen.healthy()


def test_no_mode_is_left_behind(seen):
    states = [json.loads(line.split(" ", 1)[1]) for line in seen.probed.stdout.splitlines() if line[:8] == "process "]
    assert len(states) == len(STYLES)
    assert {(state["modes"], state["profiler"]) for state in states} == {(0, False)}


def test_forwards_under_way_at_once_are_counted_on_every_thread(seen):
    process = seen.named("shared")
    found = total(process)
    assert (found.threads, found.shared) == (THREADS, 1)
    # A second thread must come before anything is counted; a record may be swapped while another thread adds to it.
    assert THREADS * CALLS * 0.9 <= found.calls <= THREADS * CALLS
    assert found.overlapped >= 0.9 * found.calls
    assert (found.in_training, found.eval_with_grad, found.backwards) == (0, 0, 0)
    count, wall, cpu, delay = found.together
    assert count > 0
    assert 0 < cpu + delay <= wall * 1.1
    assert isinstance(found.site, Site)
    assert (found.site.file, found.site.function) == ("threads.py", "call")


def test_the_loop_is_that_of_one_thread(seen):
    process = seen.named("shared")
    assert set(process.steps["boundary"]) == {2}
    assert 0.9 * CALLS <= len(process.steps) <= CALLS


def test_training_mode_and_gradients_are_those_of_the_threads(seen):
    in_training, graded = total(seen.named("training_mode")), total(seen.named("graded"))
    assert in_training.in_training >= 0.9 * in_training.calls
    assert in_training.eval_with_grad == 0
    assert graded.eval_with_grad >= 0.9 * graded.calls
    assert graded.in_training == 0


def test_behind_a_lock_no_forwards_overlap_and_threads_stand_before_it(seen):
    found = total(seen.named("locked"))
    assert found.overlapped <= 0.02 * found.calls
    assert found.waiters > 0


@pytest.mark.parametrize("style", ["warmed_up", "fed_by_a_loader", "fresh_threads"])
def test_the_loop_moves_to_where_the_model_is_called(seen, style):
    process = seen.named(style)
    # How a pool shares out its work is its own affair.
    assert len(process.steps) > 5
    assert process.steps["boundary"][-1] == 2
    assert total(process).calls > 50


def test_threads_one_after_another_do_not_overlap(seen):
    assert sum(record.overlapped for record in seen.named("one_after_another").forwards_seen) == 0


def test_a_thread_beside_training_takes_no_step_away(seen):
    process = seen.named("beside_training")
    # The thread beside it comes first, and is the loop until an optimizer steps.
    boundaries = list(process.steps["boundary"])
    assert set(boundaries[:-90]) <= {2}
    assert boundaries[-90:] == [0] * 90
    assert total(process).backwards > 0


def test_forwards_that_raise_are_not_counted(seen):
    # Two of three pass; every thread's are seen, but for those before the second thread came.
    assert total(seen.named("raising")).calls <= THREADS * CALLS * 2 / 3


@pytest.mark.slow
def test_operators_of_a_forward_are_timed_alone_and_as_a_batch(observe):
    process = observe("threads.py", "endless").named("endless")
    assert process.request_rounds
    for timing in process.request_rounds:
        assert timing.copies >= 2
        assert (timing.ops, timing.timed) == (12, 12)
        assert min(timing.one_ms, timing.batch_ms, timing.single_ms) > 0
