"""Modes of the job's own, by when they were seen last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recordings import recorded, site

from perfdoctor.evidence import modes
from perfdoctor.evidence.model import Missing, Modes

TIMED = {
    "name": "FlopCounterMode",
    "module": "torch.utils.flop_counter",
    "kind": "dispatch",
    "calls_per_step": 400.0,
    "ms": [9.0, 12.0, 10.0],
    "site": 3,
}


def _seen(on: int, looked: int = 8) -> dict[str, Any]:
    return {"k": "modes", "step": 16, "looked": looked, "on": on}


def _window(*timed: dict[str, Any]) -> dict[str, Any]:
    return {"k": "window", "name": "modes", "first_step": 18, "steps": 5, "on": 5, "modes": list(timed)}


def _built(directory: Path, *records: dict[str, Any]) -> Modes | Missing:
    return modes.build(recorded(directory, site(3, 12), *records))


def test_what_one_takes_is_the_median_of_its_steps_by_their_share(tmp_path: Path) -> None:
    cheap = {**TIMED, "name": "Log", "ms": [1.0]}
    built = _built(tmp_path, _seen(2, 16), _window(cheap, TIMED))
    assert isinstance(built, Modes) and not isinstance(built.timed, Missing)
    first, second = built.timed
    assert (first.name, second.name) == ("FlopCounterMode", "Log")
    assert first.site is not None and first.site.line == 12
    assert built.ms_per_step(first) == pytest.approx(10.0 / 8)


def test_one_that_has_ended_or_never_was_costs_nothing(tmp_path: Path) -> None:
    assert isinstance(_built(tmp_path, _seen(8), _window(TIMED), _seen(0)), Missing)
    (tmp_path / "none").mkdir()
    assert isinstance(_built(tmp_path / "none"), Missing)


@pytest.mark.parametrize(
    "records",
    [[], [{"k": "window", "name": "modes", "missing": "the job uses torch.compile"}], [_window()]],
    ids=["no window", "an obstacle", "no step with one"],
)
def test_one_that_was_not_timed_is_on_all_the_same(tmp_path: Path, records: list[dict[str, Any]]) -> None:
    built = _built(tmp_path, _seen(8), *records)
    assert isinstance(built, Modes) and isinstance(built.timed, Missing)
