"""Fixtures for whole runs."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Perfdoctor

# A shell starts background jobs deaf to Ctrl-C, and children inherit that; handlers they do not inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
