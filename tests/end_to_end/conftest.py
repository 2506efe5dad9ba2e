"""Fixtures for whole runs."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path

import psutil
import pytest
from running import Perfdoctor

from benchmarks.clinic.asking import stolen_share

# A shell starts background jobs deaf to Ctrl-C, and children inherit that; handlers they do not inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_STOLEN = 0.05
"""Of the CPU time that was wanted during a test: a check of the machine may then rightly find what the job has not."""


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
        if stolen < _STOLEN:
            raise
        raise DisturbedError(f"the hypervisor took {stolen:.0%} of the CPU time during this test") from failure


@pytest.fixture
def perfdoctor(tmp_path: Path) -> Iterator[Perfdoctor]:
    runner = Perfdoctor(tmp_path)
    yield runner
    runner.end_all()


@pytest.fixture(scope="module")
def perfdoctor_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Perfdoctor]:
    """For runs that several tests look at."""
    runner = Perfdoctor(tmp_path_factory.mktemp("perfdoctor"))
    yield runner
    runner.end_all()
