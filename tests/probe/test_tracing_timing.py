"""Passes are timed with `tracemalloc` and without, and it traces on afterwards as it did."""

from __future__ import annotations

import tracemalloc

import pytest
import torch
from torch import nn

from perfdoctor.injected._perfdoctor_probe.microbenchmarks import tracing
from perfdoctor.injected._perfdoctor_probe.microbenchmarks.passes import PassMicrobenchmark


def _passes() -> PassMicrobenchmark:
    passes, model = PassMicrobenchmark(), nn.Linear(4, 2)
    passes.note(model, (torch.ones(3, 4),), {})
    passes.keep(1.0)
    passes.model = model  # type: ignore[attr-defined]  # which it does not keep alive
    return passes


@pytest.fixture(params=[1, 3])
def traced(request: pytest.FixtureRequest) -> object:
    tracemalloc.start(request.param)
    yield request.param
    tracemalloc.stop()


def test_it_traces_as_deep_as_before(traced: int) -> None:
    found = tracing.timings(_passes())["tracing"]
    assert set(found) == {"now_ms", "off_ms"} and found["off_ms"] > 0
    assert tracemalloc.is_tracing() and tracemalloc.get_traceback_limit() == traced


def test_where_nobody_traces_there_is_nothing_to_time() -> None:
    assert tracing.timings(_passes()) == {} and not tracemalloc.is_tracing()
