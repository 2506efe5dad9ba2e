"""Convolutions of a CPU that are made again otherwise: along the other axis, with other channels, in wide groups."""

from __future__ import annotations

import pytest
from ill_runs.cudnn import narrow, odd, upright
from perfdoctor.checks.cudnn import CHECK, examine
from samples import is_clear, number, only

from perfdoctor.diagnosis.findings import Location, Severity
from perfdoctor.evidence.model import Evidence

# ---------------------------------------------------------------------------------------------------------
# Images that are one number wide


def test_convolutions_along_the_height_of_thin_images_are_told_by_passes_made_again() -> None:
    finding = only(examine(upright(), CHECK.limits))
    assert finding.id == "PD02.long-axis-first" and finding.severity is Severity.ERROR
    assert finding.location == Location("model.py", 9, "along_time")
    assert number(finding, "cost_ms") == pytest.approx(0.4 * 22)
    assert {m.name: m.value for m in finding.evidence}["kernel"] == "9 x 1"


@pytest.mark.parametrize(
    "run",
    [
        upright(took_ms=9.6),
        upright(input_shape=(8, 16, 1, 250), weight_shape=(32, 16, 1, 9)),
        upright(input_shape=(8, 16, 250, 25)),
    ],
    ids=["no faster", "along the width", "images that are wider"],
)
def test_other_convolutions_are_left_alone(run: Evidence) -> None:
    assert is_clear(examine(run, CHECK.limits))


# ---------------------------------------------------------------------------------------------------------
# Channels that are no multiple of what vectors hold


def test_channels_that_lack_are_an_opportunity_by_passes_made_again() -> None:
    finding = only(examine(odd(), CHECK.limits))
    assert (finding.id, finding.severity) == ("PD02.odd-channels", Severity.NOTE)
    assert finding.location == Location("model.py", 9, "along_time")
    assert number(finding, "cost_ms") == pytest.approx(0.4 * 22)
    assert (number(finding, "channels"), number(finding, "even")) == (15, 16)


def test_channels_too_many_are_told_by_what_they_cost_beside_their_own_work() -> None:
    """A layer of 35 channels saves some of its time with 32 anyway, whatever a vector holds."""
    finding = only(examine(odd(channels=35), CHECK.limits))
    assert (number(finding, "channels"), number(finding, "even")) == (35, 32)


@pytest.mark.parametrize(
    "run",
    [odd(took_ms=9.6), odd(channels=32), odd(took_ms=9.4, channels=35)],
    ids=["no faster", "even already", "no faster but for less work"],
)
def test_channels_that_cost_nothing_are_left_alone(run: Evidence) -> None:
    assert is_clear(examine(run, CHECK.limits))


# ---------------------------------------------------------------------------------------------------------
# Groups of fewer channels than vectors hold


def test_groups_of_two_channels_are_an_opportunity_by_convolutions_made_again() -> None:
    finding = only(examine(narrow(), CHECK.limits))
    assert (finding.id, finding.severity) == ("PD02.narrow-groups", Severity.NOTE)
    assert finding.location == Location("model.py", 9, "__init__")
    assert number(finding, "cost_ms") == pytest.approx(3.0)
    assert (number(finding, "groups"), number(finding, "channels")) == (32, 2)


@pytest.mark.parametrize("wide_ms", [2.2, 1.9], ids=["slower", "hardly faster"])
def test_groups_that_cost_nothing_are_left_alone(wide_ms: float) -> None:
    assert is_clear(examine(narrow(wide_ms), CHECK.limits))
