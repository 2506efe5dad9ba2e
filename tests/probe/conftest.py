"""Runs of jobs bare and under the probe."""

from __future__ import annotations

import pytest
from launches import Launches
from observing import Observer


@pytest.fixture
def observe(launches: Launches) -> Observer:
    """A job observed once is not launched again, whichever test asks for it."""
    return Observer(launches)
