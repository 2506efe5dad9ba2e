"""Healthy runs that look like debugging left on, or like a wasteful update: nothing is told of them."""

from __future__ import annotations

import pytest
from ill_runs.debugging import asserting, profiled
from ill_runs.optimizer import HEADER, stepped_schedule
from perfdoctor.checks import debugging_left_on, optimizer
from samples import HOT_LINES, healthy, is_clear, with_

from perfdoctor.evidence.model import CallSite, Evidence, Line, Loop, Missing, Site

ANOMALY_LINE = Site("train.py", 9, "main")
EMA_LINE = Site("ema.py", 12, "update")


def _averaging(runs: float, ops: float, ms: float, loop: Loop | None = None) -> Evidence:
    line = Line(EMA_LINE, "other", ops, ms, 0.8 * ms, 0.1, 0.1, runs, loop=loop)
    return with_(healthy(), hot_lines=(line, *HOT_LINES))


@pytest.mark.parametrize(
    "run",
    [
        profiled(share=0.0, ending_share=0.05),
        # The switch was met in the first ten steps; in those that were watched nothing was traced.
        with_(healthy(), call_sites=(CallSite("anomaly_trace", ANOMALY_LINE, 0.0, 0.0, "switch"),)),
        with_(asserting(), call_sites=()),
    ],
    ids=["a profiler with a schedule that ends", "anomaly detection in the first steps", "asserts on Python's shapes"],
)
def test_debugging_that_is_over_or_reads_no_tensor_is_not_left_on(run: Evidence) -> None:
    assert is_clear(debugging_left_on.examine(run, debugging_left_on.CHECK.limits))


@pytest.mark.parametrize(
    "run",
    [
        # The discriminator's parameters get gradients in the generator's steps, and have an optimizer of their own.
        with_(healthy(), layers__unused=Missing("an optimizer updates every parameter that gets a gradient")),
        _averaging(runs=0.1, ops=0.1, ms=0.05),
        _averaging(runs=12.0, ops=24.0, ms=0.3, loop=Loop(11, HEADER)),
        stepped_schedule(calls=1.0, ms=0.4),
    ],
    ids=[
        "two optimizers that take turns",
        "an average by one operator every ten steps",
        "an average of all every ten steps",
        "a schedule stepped once",
    ],
)
def test_updates_that_take_turns_or_are_rare_are_no_finding(run: Evidence) -> None:
    assert is_clear(optimizer.examine(run, optimizer.CHECK.limits))
