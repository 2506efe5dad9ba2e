"""What a line takes that goes through more numbers with each step, in the mean of the steps seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from recordings import recorded, selected, site, steps, window

from perfdoctor.evidence import growing_work, steady
from perfdoctor.evidence.model import GrowingWork, Missing

SINCE = 30
"""The step in which it was watched; by then there were a thousand numbers for each step so far."""
STEPS = 200


def _built(directory: Path, anew_every: int, each_ms: float = 0.2, metric_ms: float = 0.0) -> GrowingWork:
    """Steps of 20 ms, and so much for each step since it last began."""
    walls = [round(20_000 + 1000 * each_ms * (number % anew_every)) for number in range(STEPS)]
    row = {
        "at": 1,
        "forward_ms": each_ms * SINCE,
        "ops_per_step": 3.0,
        "numbers": 1000 * SINCE,
        "more": 1000,
        "operators": ["sort"],
    }
    metric = {"at": 1, "ops_per_step": 20.0, "forward_ms": metric_ms, "operators": ["sort"]}
    seen = {**window("repeats", rows=[], growing=[row], metrics=[metric], ops_ms=1.0), "first_step": SINCE}
    directory.mkdir(exist_ok=True)
    recording = recorded(directory, site(1, line=7), steps(walls), seen)
    selection = selected(recording)
    found = growing_work.build(recording, selection, steady.measure(recording, selection))
    assert not isinstance(found, Missing)
    return found[0]


def test_what_grows_on_has_the_numbers_of_the_middle_of_the_steps(tmp_path: Path) -> None:
    found = _built(tmp_path, anew_every=STEPS)
    assert not found.starts_anew and found.steps == STEPS - 1
    assert found.numbers == pytest.approx(1000 * STEPS / 2, rel=0.05)
    assert found.forward_ms == pytest.approx(0.2 * STEPS / 2, rel=0.05)


def test_growth_that_steps_do_not_show_is_believed(tmp_path: Path) -> None:
    found = _built(tmp_path, anew_every=50, each_ms=0.01)
    assert not found.starts_anew and found.numbers == pytest.approx(1000 * STEPS / 2, rel=0.05)


def test_what_starts_anew_in_each_epoch_takes_what_steps_tell(tmp_path: Path) -> None:
    found = _built(tmp_path, anew_every=50)
    assert found.starts_anew
    assert found.forward_ms == pytest.approx(0.2 * 25, abs=1.5), "and not 20 ms, as if it went on"
    assert found.numbers == pytest.approx(25_000, rel=0.3)


def test_the_whole_metric_is_counted_that_is_to_be_computed_once(tmp_path: Path) -> None:
    alone, whole = _built(tmp_path / "alone", anew_every=50), _built(tmp_path / "whole", anew_every=50, metric_ms=9.0)
    assert whole.forward_ms == pytest.approx(alone.forward_ms + 9.0 - 0.2 * SINCE)
    assert whole.numbers == alone.numbers
