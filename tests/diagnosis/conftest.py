"""Judging as the checks predict: what earlier predictions missed has tests of its own (`test_calibration`)."""

from __future__ import annotations

import pytest

from perfdoctor.diagnosis import calibration


@pytest.fixture(autouse=True)
def _as_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "_known", calibration.Known)
