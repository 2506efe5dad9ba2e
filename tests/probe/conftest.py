"""Runs of jobs bare and under the probe."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from following import NOW
from launches import Launches
from observing import Observer

from perfdoctor.injected._perfdoctor_probe import timeline
from perfdoctor.injected._perfdoctor_probe.windows import followed


@pytest.fixture
def observe(launches: Launches) -> Observer:
    """A job observed once is not launched again, whichever test asks for it."""
    return Observer(launches)


@pytest.fixture
def standing_clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One that moves only when `spend` does, for what follows functions. The tracer and profiler of a coverage tool, if
    any, are put back."""
    before = sys.gettrace(), sys.getprofile()
    sys.settrace(None)
    sys.setprofile(None)
    monkeypatch.setattr(followed, "_clock", lambda: NOW[0])
    monkeypatch.setattr(followed, "_delay", lambda: 0)
    monkeypatch.setattr(timeline, "_clock", lambda: NOW[0])
    yield
    sys.settrace(before[0])
    sys.setprofile(before[1])
