"""Steps that take long at equal distances: when the next one comes is known."""

from __future__ import annotations

import pytest

from perfdoctor.injected._perfdoctor_probe.windows.long_steps import LONGEST, LongSteps

USUAL, LONG, VERY_LONG = 1000, 30_000, 1_500_000


def _walls(length: int, times: int, long: int = LONG) -> list[int]:
    return [long, *[USUAL] * (length - 1)] * times


def _starts(length: int, times: int) -> set[int]:
    return {length * number for number in range(times)}


def test_where_a_loader_starts_anew_the_second_start_tells() -> None:
    known = LongSteps()
    assert known.look(0, _walls(27, 1), {0}, set()) is None
    assert known.look(27, _walls(27, 1), {27}, set()) == {"at": 27, "length": 27}


@pytest.mark.parametrize(
    ("long", "distances"), [(6 * USUAL, 3), (LONG, 2), (VERY_LONG, 1)], ids=["long", "very long", "no pause"]
)
def test_without_a_loader_it_takes_equal_distances_that_are_no_chance(long: int, distances: int) -> None:
    """The first step is long anyway; what takes very long comes as far from the job's beginning as again from there."""
    assert LongSteps().look(0, _walls(27, distances + 1, long), set(), set()) is None
    found = LongSteps().look(0, _walls(27, distances + 2, long), set(), set())
    assert found == {"at": 27 * (distances + 1), "length": 27}


def test_shorter_pauses_of_the_machine_between_them_hide_nothing() -> None:
    walls = _walls(27, 5)
    for number in (40, 71, 100, 119):
        walls[number] = 6 * USUAL
    assert LongSteps().look(0, walls, set(), set()) == {"at": 108, "length": 27}


@pytest.mark.parametrize(("at", "found"), [(54, {"at": 81, "length": 27}), (55, None)])
def test_a_step_that_held_work_of_ours_counts_where_it_is_as_long_as_others(at: int, found: dict | None) -> None:
    walls = [LONG, *[USUAL] * 80, LONG]
    walls[27], walls[at] = round(1.1 * LONG), round(0.9 * LONG)
    assert LongSteps().look(0, walls, set(), {27, at}) == found


def test_it_is_told_once() -> None:
    known = LongSteps()
    told = [known.look(first, _walls(27, 1), {first}, set()) for first in range(0, 27 * 6, 27)]
    assert [one for one in told if one is not None] == [{"at": 27, "length": 27}]


@pytest.mark.parametrize(
    ("walls", "started", "marked"),
    [
        (_walls(27, 5, long=2 * USUAL), set(), set()),  # hardly longer
        (_walls(27, 5, long=2 * USUAL), _starts(27, 5), set()),
        (_walls(100, 5, long=4 * USUAL), _starts(100, 5), set()),  # less than a twentieth of the time
        ([*_walls(27, 3), *_walls(27, 2, long=2 * LONG)], set(), {81, 108}),  # what made it long may be ours
        ([*_walls(27, 3), *_walls(20, 1), *_walls(27, 1)], set(), set()),
        (_walls(2, 50), _starts(2, 50), set()),
    ],
    ids=["short", "short starts", "little", "ours", "uneven", "every second one"],
)
def test_what_is_not_worth_waiting_for(walls: list[int], started: set[int], marked: set[int]) -> None:
    assert LongSteps().look(0, walls, started, marked) is None


def test_an_epoch_that_nobody_will_see_the_end_of_is_not_waited_for() -> None:
    length = LONGEST + 1
    assert LongSteps().look(0, _walls(length, 2, long=LONG * LONGEST), _starts(length, 2), set()) is None


def test_steps_that_are_missing_begin_it_anew() -> None:
    known = LongSteps()
    known.look(0, _walls(27, 2), set(), set())
    assert known.look(60, _walls(27, 4), set(), set()) == {"at": 60 + 81, "length": 27}
