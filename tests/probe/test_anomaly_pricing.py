"""What anomaly detection costs, and that pricing it leaves the job's switch as it was."""

from __future__ import annotations

import pytest
import torch

from perfdoctor.injected._perfdoctor_probe import anomaly_pricing


@pytest.fixture
def detecting():
    before = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    yield torch.set_anomaly_enabled
    torch.set_anomaly_enabled(*before)


@pytest.mark.parametrize("check_nan", [True, False])
def test_it_is_timed_both_ways_and_stays_on(detecting, check_nan):
    detecting(True, check_nan)
    with torch.no_grad():
        price = anomaly_pricing.price()
    assert price is not None
    assert price["on_us"] > 0 and price["off_us"] > 0
    assert (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()) == (True, check_nan)


def test_where_it_is_off_nothing_is_timed(detecting):
    detecting(False, True)
    assert anomaly_pricing.price() is None
    assert not torch.is_anomaly_enabled()
