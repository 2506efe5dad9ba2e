"""What a machine that is given to others does to tests that run whole jobs and measure them."""

from __future__ import annotations

import subprocess
from collections.abc import Generator

import psutil
import pytest

from benchmarks.clinic.asking import STOLEN, stolen_share


class DisturbedError(Exception):
    """A test failed while the hypervisor gave this machine's CPUs to others; `make test` runs it again."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Tells failures that may be the hypervisor's doing from all others."""
    before = psutil.cpu_times()
    try:
        return (yield)
    except (AssertionError, subprocess.TimeoutExpired) as failure:
        stolen = stolen_share(before, psutil.cpu_times())
        if stolen < STOLEN:
            raise
        raise DisturbedError(f"the hypervisor took {stolen:.0%} of the CPU time during this test") from failure
