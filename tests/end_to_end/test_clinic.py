"""Programs of the clinic, judged as its benchmark judges them; on a busy machine neighbours are blamed besides."""

from __future__ import annotations

import pytest

from benchmarks.clinic import doctor, running
from benchmarks.clinic.case import cases, write
from benchmarks.clinic.judgement import matches

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CASES = {case.name: case for case in cases()}
BUSY = ("PD12", "PD03.no-cpu-left")
"""True wherever tests run side by side."""


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads beside another test's job would spin: that would be the finding."""
    monkeypatch.setenv(running.THREADS, "1")


@pytest.mark.parametrize("name", ["tabular_types", "rumour_lengths", "barley_ranks", "orbit_scores"])
def test_a_sick_program_and_its_well_twin(name: str) -> None:
    case = CASES[name]
    sick = doctor.judge(write(case, seed=3))
    assert any(matches(claim.id, tuple(case.expect)) for claim in sick.alarms()), sick
    well = doctor.judge(write(case, seed=3, cured=frozenset(case.illnesses)))
    assert not any(matches(claim.id, tuple(case.expect)) for claim in well.alarms((*case.allow, *BUSY))), well


@pytest.mark.parametrize("name", ["crane_control", "glyph_gan", "tempo_bars", "quilt_ranks", "lantern_ranks"])
def test_a_decoy_and_a_healthy_program(name: str) -> None:
    judgement = doctor.judge(write(CASES[name], seed=3))
    assert judgement.failure == ""
    assert judgement.alarms((*CASES[name].allow, *BUSY)) == []
