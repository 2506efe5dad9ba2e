"""Programs of the clinic, judged as its benchmark judges them; on a busy machine neighbours are blamed besides."""

from __future__ import annotations

import pytest

from benchmarks.clinic import doctor
from benchmarks.clinic.case import cases, write
from benchmarks.clinic.judgement import matches

CASES = {case.name: case for case in cases()}
BUSY = ("PD12", "PD03.no-cpu-left")
"""True wherever tests run side by side."""


@pytest.mark.parametrize("name", ["contrastive_draws", "tabular_types"])
def test_a_sick_program_and_its_well_twin(name: str) -> None:
    case = CASES[name]
    sick = doctor.judge(write(case, seed=3))
    assert any(matches(claim.id, tuple(case.expect)) for claim in sick.alarms()), sick
    well = doctor.judge(write(case, seed=3, cured=frozenset(case.illnesses)))
    assert not any(matches(claim.id, tuple(case.expect)) for claim in well.alarms((*case.allow, *BUSY))), well


def test_a_decoy() -> None:
    judgement = doctor.judge(write(CASES["crane_control"], seed=3))
    assert judgement.failure == ""
    assert judgement.alarms(BUSY) == []
