"""The operator window's own trace: kept where it is asked for, and the job does the same."""

from __future__ import annotations

import json
import sys
from itertools import pairwise

import pytest

from perfdoctor.recording.kept_trace import KeptTrace

WINDOWS = "sites,ops"
ROOM_NS = 200_000
"""Between the profiler's clock and the timeline's: microseconds, and what a busy machine puts between two readings."""


@pytest.fixture
def observed(observe):
    return observe("loops.py", "plain", "by_hand", windows=WINDOWS, env={"PERFDOCTOR_KEEP_TRACE": "1"})


@pytest.fixture
def kept(observed):
    trace = observed.named("plain").ops.trace
    assert isinstance(trace, KeptTrace)
    return trace


@pytest.fixture
def events(observed, kept):
    written = json.loads((observed.run / kept.file).read_text())
    base = written.get("baseTimeNanoseconds", 0)

    def when(us: float) -> int:
        return round(us * 1000) + base - kept.clock_ns

    return [
        (event["name"], when(event["ts"]), when(event["ts"] + event["dur"]), event["tid"])
        for event in written["traceEvents"]
        if event["ph"] == "X"
    ]


@pytest.mark.e2e
def test_the_job_does_and_says_the_same(observed):
    observed.same()
    observed.healthy()


@pytest.mark.e2e
def test_the_windows_steps_follow_one_another_and_are_in_no_statistic(observed, kept):
    steps = observed.named("plain").steps
    marked = set(steps["step"][steps["marked"] == 1].tolist())
    assert kept.steps and {step.step for step in kept.steps} <= marked
    for step, following in pairwise(kept.steps):
        assert following.step == step.step + 1 and following.start_ns >= step.end_ns > step.start_ns


@pytest.mark.e2e
def test_parts_fill_the_steps_without_overlap(kept):
    assert kept.parts_left_out == 0
    for part, following in pairwise(kept.parts):
        assert part.start_ns < part.end_ns <= following.start_ns
    for step in kept.steps:
        inside = [p for p in kept.parts if step.start_ns <= p.start_ns and p.end_ns <= step.end_ns]
        assert sum(p.end_ns - p.start_ns for p in inside) == step.end_ns - step.start_ns
        assert {p.part for p in inside} >= {"input_wait", "forward", "backward", "optimizer"}


@pytest.mark.e2e
def test_parts_lie_where_the_profiler_saw_them(kept, events):
    for name, part in (("perfdoctor layer 0", "forward"), ("enumerate(DataLoader)", "input_wait")):
        spans = [(start, end) for found, start, end, _ in events if found.startswith(name)]
        around = [p for p in kept.parts if p.part == part]
        inside = [
            any(p.start_ns - ROOM_NS <= start and end <= p.end_ns + ROOM_NS for p in around) for start, end in spans
        ]
        # Where the thread lost its CPU between two readings, a step has more between its clocks.
        assert spans and inside.count(True) >= len(spans) / 2, (name, inside)


@pytest.mark.e2e
def test_the_loops_thread_and_its_layers_are_named(kept, events):
    layers = [(name, thread) for name, _, _, thread in events if name.startswith("perfdoctor layer ")]
    assert {thread for _, thread in layers} == {kept.thread}
    assert {int(name.rpartition(" ")[2]) for name, _ in layers} == set(range(len(kept.layers)))
    assert [(layer.name, layer.kind) for layer in kept.layers][:3] == [
        ("", "Net"),
        ("layers", "Sequential"),
        ("layers.0", "Linear"),
    ]
    assert kept.layers[2].made_at is not None


@pytest.mark.e2e
def test_an_update_by_hand_is_the_optimizers_part(observed):
    kept = observed.named("by_hand").ops.trace
    assert isinstance(kept, KeptTrace)
    assert "optimizer" in {part.part for part in kept.parts}


# ---------------------------------------------------------------------------------------------------------
# Borders by themselves


def borders():
    """Of a window that has just opened, and the timeline's numbers of parts; the module needs torch."""
    sys.modules.setdefault("torch", pytest.importorskip("torch"))
    from perfdoctor.injected._perfdoctor_probe import timeline
    from perfdoctor.injected._perfdoctor_probe.windows.kept_trace import Borders

    new = Borders()
    new.crossed(timeline.OTHER, 5)
    new.step_begins(10)
    return new, timeline


def test_nothing_is_noted_before_the_first_step():
    new, _ = borders()
    assert new.parts == [] and new.steps == []


def test_what_ran_since_the_forward_pass_goes_where_it_belongs():
    new, at = borders()
    for part, now in ((at.FORWARD, 20), (at.LOSS, 22), (at.GC, 23), (at.LOSS, 30)):
        new.crossed(part, now)
    new.end_loss(at.FORWARD)
    assert [row[0] for row in new.parts] == [at.FORWARD, at.FORWARD, at.GC, at.FORWARD]


def test_waiting_that_was_noticed_at_its_end_is_taken_from_the_part_before():
    new, at = borders()
    new.crossed(at.BACKWARD, 30)
    new.crossed(at.COMMUNICATION, 31)
    new.lasted(12)
    assert new.parts == [[at.BACKWARD, 10, 18], [at.COMMUNICATION, 18, 31]]
    new.lasted(1000)
    assert new.parts[0] == [at.BACKWARD, 10, 10]


def test_what_followed_the_backward_pass_was_the_update():
    new, at = borders()
    for part, now in ((at.OTHER, 12), (at.BACKWARD, 20), (at.OTHER, 25)):
        new.crossed(part, now)
    new.step_ended(7, at.OTHER, 26)
    new.was_update()
    assert [row[0] for row in new.parts] == [at.OTHER, at.BACKWARD, at.OPTIMIZER, at.OPTIMIZER]
    assert new.steps == [(7, 10, 26)]


def test_what_perfdoctor_does_between_two_steps_is_neithers():
    new, at = borders()
    new.step_ended(7, at.OTHER, 20)
    new.step_begins(24)
    new.step_ended(8, at.OTHER, 30)
    assert new.steps == [(7, 10, 20), (8, 24, 30)]
    assert [row[1:] for row in new.parts] == [[10, 20], [20, 24], [24, 30]]
