"""Loops whose steps come in cycles: they are recognised, and windows hold whole ones."""

from __future__ import annotations

import pytest

from perfdoctor.evidence import steady
from perfdoctor.evidence.evaluation import held
from perfdoctor.evidence.model import Missing
from perfdoctor.injected._perfdoctor_probe.windows.cycles import Cycles
from perfdoctor.recording.lines import SitesWindow

Row = tuple[int, int, bool]
LEARNING: Row = (1000, 1, False)
ACTING: Row = (9000, 41, False)


def _found(rows: list[Row]) -> dict[str, int] | None:
    return Cycles().look(0, rows)


def _cycles(first: Row, length: int, times: int = 6) -> list[Row]:
    return [first, *[LEARNING] * (length - 1)] * times


@pytest.mark.parametrize("length", [3, 5, 64])
def test_equal_distances_are_a_cycle(length: int) -> None:
    assert _found(_cycles((length * 1000, 41, False), length)) == {"at": 5 * length, "length": length}


def test_one_that_calls_the_model_no_more_often_is_known_by_what_it_takes() -> None:
    assert _found(_cycles((9000, 1, False), 5)) == {"at": 25, "length": 5}


@pytest.mark.parametrize(
    "rows",
    [
        [LEARNING] * 50,
        _cycles(ACTING, 5, times=3),  # three are too few to be sure
        _cycles(ACTING, 65),  # longer than any window
        _cycles((1000, 41, False), 20),  # takes as long as the others: a validation of one batch
        _cycles((9000, 41, True), 5),  # an iterator starts in each: epochs
        [*_cycles((9000, 41, True), 5, 5), *_cycles(ACTING, 5, 1)],  # the last start was not noted yet
        [*_cycles(ACTING, 5, 2), LEARNING, *_cycles(ACTING, 5, 2)],
        _cycles((1_100_000, 41, False), 5),  # a window of more than a second
    ],
)
def test_what_is_no_cycle(rows: list[Row]) -> None:
    assert _found(rows) is None


def test_one_of_its_long_steps_may_begin_an_epoch() -> None:
    """Batches of 16 steps an epoch, and a look at memory in every fourth step."""
    rows = [(9000 if step % 4 == 0 else 1000, 1, step % 16 == 0) for step in range(1, 25)]
    assert _found(rows) == {"at": 23, "length": 4}


def test_rows_may_come_a_few_at_a_time_and_are_told_once() -> None:
    cycles, rows = Cycles(), _cycles(ACTING, 5)
    told = [cycles.look(first, rows[first : first + 7]) for first in range(0, len(rows), 7)]
    assert [one for one in told if one is not None] == [{"at": 20, "length": 5}]


@pytest.mark.parametrize("times", [2, 3])
def test_long_steps_of_which_some_are_not_long_enough_are_the_same_cycle(times: int) -> None:
    """Windows would be opened anew each time that a collection took a little less than three usual steps."""
    cycles = Cycles()
    assert cycles.look(0, _cycles((9000, 1, False), 4)) == {"at": 20, "length": 4}
    longer = _cycles((9000, 1, False), 4 * times)
    assert cycles.look(24, longer) is None
    assert cycles.look(24 + len(longer), _cycles((9000, 1, False), 4)) is None


def test_another_cycle_is_told_where_no_multiple_of_it_is_known() -> None:
    cycles = Cycles()
    assert cycles.look(0, _cycles((9000, 1, False), 4)) == {"at": 20, "length": 4}
    assert cycles.look(24, _cycles((9000, 1, False), 5)) == {"at": 49, "length": 5}


@pytest.fixture
def seen(observe):
    return observe("cycles.py")


def test_an_agent_that_acts_between_updates_is_seen_in_whole_cycles(seen):
    assert seen.probed == seen.bare
    (process,) = seen.ranks
    assert process.cycle is not None and process.cycle.length == 5
    assert isinstance(process.call_sites, SitesWindow) and process.call_sites.steps == 5
    reads = sum(call.calls_per_step for call in process.call_sites.calls if call.kind == "scalar_read")
    assert reads == 120 / 5
    loop = next(line.loop for line in process.call_sites.lines if line.loop and line.loop.carries)
    assert (loop.header, loop.across) == ("for t in reversed(range(TIMES))", "for agent in range(AGENTS)")
    selection = steady.select(process)
    assert not isinstance(selection, Missing) and selection.cycle == 5
    assert set((selection.column("step") - process.cycle.at) % 5) == set(range(5))
    step = steady.measure(process, selection)
    assert step.step_ms > 60 / 5 and step.irregular == 0
    assert not len(held(process).inference)
    # What comes after a forward pass without gradients is no loss.
    assert step.parts.other > step.parts.forward
