"""What a machine that is shared does to tests that run whole jobs and measure them."""

from __future__ import annotations

import subprocess
from collections.abc import Generator

import hypothesis
import psutil
import pytest

from benchmarks.clinic.asking import STOLEN, idle_share, stolen_share

# A busy machine is no reason to fail an example.
hypothesis.settings.register_profile("shared-machine", deadline=None)
hypothesis.settings.load_profile("shared-machine")

_IDLE = 0.10
"""Of the CPU time. With less, the training jobs of two test workers and their ranks waited for one another: a job that
waited for a CPU for a third of its time had two profiled steps of nothing but waiting, and an illness was missed."""


class DisturbedError(Exception):
    """A test failed on a machine whose CPUs were given to others or were all busy; `make test` runs it again."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Tells failures that may be the machine's doing from all others."""
    before = psutil.cpu_times()
    try:
        return (yield)
    except (AssertionError, subprocess.TimeoutExpired) as failure:
        after = psutil.cpu_times()
        stolen, idle = stolen_share(before, after), idle_share(before, after)
        if stolen < STOLEN and idle > _IDLE:
            raise
        raise DisturbedError(f"of the CPU time during this test {stolen:.0%} was stolen, {idle:.0%} idle") from failure
