"""What was asked beside a hypervisor that gave the machine to others is asked again."""

from __future__ import annotations

from collections import namedtuple

import pytest

from benchmarks.clinic import asking
from benchmarks.clinic.case import PROGRAMS, Program, load, write
from benchmarks.clinic.judgement import Judgement

Times = namedtuple("Times", ["user", "system", "idle", "iowait", "steal", "guest"])


def test_the_stolen_share_is_of_the_time_that_was_wanted() -> None:
    before = Times(100.0, 10.0, 500.0, 5.0, 1.0, 20.0)
    after = Times(110.0, 12.0, 600.0, 9.0, 5.0, 24.0)  # 4 of the 10 seconds are a guest's and counted twice
    assert asking.stolen_share(before, after) == pytest.approx(4 / (10 + 2 + 4))
    assert asking.stolen_share(before, before) == 0
    assert asking.stolen_share(before, before._replace(steal=1.02)) == 0  # two ticks of a program that took no time


def test_the_idle_share_is_of_all_time_and_waiting_for_a_disk_is_idle() -> None:
    before = Times(100.0, 10.0, 500.0, 5.0, 1.0, 20.0)
    after = Times(110.0, 12.0, 600.0, 9.0, 5.0, 24.0)
    assert asking.idle_share(before, after) == pytest.approx((100 + 4) / (10 + 2 + 100 + 4 + 4))
    assert asking.idle_share(before, before._replace(user=100.02)) == 1  # two ticks tell nothing


def test_a_kernel_that_tells_of_no_hypervisor_has_none() -> None:
    small = namedtuple("small", ["user", "system", "idle"])
    assert asking.stolen_share(small(1.0, 1.0, 1.0), small(9.0, 1.0, 1.0)) == 0


@pytest.mark.parametrize(("stolen", "asked"), [([0.0], 1), ([0.3, 0.0], 2), ([0.3, 0.3, 0.3], 3)])
def test_a_disturbed_program_is_asked_again_at_most_twice(
    monkeypatch: pytest.MonkeyPatch, stolen: list[float], asked: int
) -> None:
    clock = [Times(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)]
    monkeypatch.setattr(asking.psutil, "cpu_times", lambda: clock[0])
    programs = []

    def doctor(program: Program) -> Judgement:
        share = stolen[len(programs)]
        clock[0] = clock[0]._replace(user=clock[0].user + 9 * (1 - share), steal=clock[0].steal + 9 * share)
        programs.append(program)
        return Judgement(failure=str(len(programs)))

    program = write(load(PROGRAMS / "wine_plain.py"), 1)
    assert asking.ask_undisturbed(doctor, program).failure == str(asked)
    assert len(programs) == asked
