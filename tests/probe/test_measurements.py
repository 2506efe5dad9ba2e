"""What is measured: the parts of a step, collections and calls with their lines."""

from __future__ import annotations

from collections import Counter

import pytest
from observing import line_of

from perfdoctor.recording.base import Site
from perfdoctor.recording.model import ProcessRecording

PARTS = ("input_wait", "forward", "backward", "optimizer", "checkpoint", "gc")
pytestmark = pytest.mark.timeout(450)

SLEEPS_US = {"input_wait": 8000, "forward": 6000, "backward": 6000, "optimizer": 5000, "other": 5000}
"""As in sleeps.py; the loss counts as forward."""


@pytest.fixture
def asleep(observe):
    seen = observe("sleeps.py", "save", "collect")
    seen.healthy()
    return seen.rank


def columns(process: ProcessRecording):
    steps = process.steps
    found = {name: steps[f"{name}_us"] for name in PARTS}
    found["other"] = steps["wall_us"] - sum(found.values())
    return found


@pytest.mark.parametrize("part", SLEEPS_US)
def test_a_known_sleep_lands_in_its_part(asleep, part):
    measured = columns(asleep)[part][2:]
    if part == "input_wait":
        measured = measured[measured > 1000]  # all but the end of an epoch
    assert (measured >= SLEEPS_US[part]).all()
    assert sorted(measured)[len(measured) // 2] < 2 * SLEEPS_US[part]


def test_saving_is_a_part_of_its_own_and_only_where_it_happens(asleep):
    saved = columns(asleep)["checkpoint"]
    assert (saved[10::10] >= 20_000).all()
    assert saved[saved > 0].size == 6 or saved[saved > 0].size == 5  # the last is after the last step
    assert [call.kind for call in asleep.calls][:1] == ["save"]


def test_collections_are_subtracted_from_what_they_interrupt(asleep):
    collected = columns(asleep)["gc"]
    assert (collected[5::10] > 1000).all()
    assert (collected[7::10] < 1000).all()


def test_sleeping_is_not_cpu_time(asleep):
    assert asleep.steps["cpu_us"].sum() < asleep.steps["wall_us"].sum() / 2


@pytest.mark.slow
def test_explicit_collections_have_a_line(observe):
    seen = observe("garbage.py")
    seen.same()
    seen.healthy()
    process = seen.rank
    lines = [line_of(collection.site) for collection in process.full_collections]
    assert lines.count("gc.collect()") == 3
    assert lines.count("late(1)") == 3
    assert lines.count("") >= 2  # taken from gc before torch came: counted, without a line
    calls = Counter()
    for call in process.calls:
        if call.kind == "empty_cache":
            calls[line_of(call.site)] += call.count
    assert calls == {"torch.cuda.empty_cache()": 3, "torch.cuda.memory.empty_cache()": 3}
    assert isinstance(process.loaders[0].site, Site) and process.loaders[0].site.file == "loops.py"


@pytest.mark.slow
def test_anomaly_detection_is_timed_and_says_what_it_says_without_us(observe):
    seen = observe("anomaly.py", windows="sites")
    seen.same()
    seen.healthy()
    assert "returned nan values" in seen.probed.stdout
    window = seen.rank.call_sites
    calls = {call.kind: call for call in window.calls}
    # A product, a relu, a product, a square and a mean, and four leaves.
    assert calls["anomaly_trace"].calls_per_step >= 5 and calls["anomaly_check"].calls_per_step >= 5
    assert "scalar_read" not in calls
    for call in (calls["anomaly_trace"], calls["anomaly_check"]):
        assert call.detail == "switch" and line_of(call.site) == "with torch.autograd.detect_anomaly():"
