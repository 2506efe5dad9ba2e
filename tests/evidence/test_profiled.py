"""A profiler of the job's own, by the later half of the steady steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recordings import WALL_US, recorded, selected, settings, site, sites_window, steps

from perfdoctor.evidence import profiled
from perfdoctor.evidence.model import Missing, Profiled
from perfdoctor.evidence.settings import deterministic

N = 101
TIMING = {"k": "profiler_timing", "ops": 100, "off_ms": 0.3, "on_ms": 0.5}


def _on(step: int, **fields: Any) -> dict[str, Any]:
    return {"k": "profiler", "step": step, "on": True, "site": 3, "options": ["with_stack"], "ends": False, **fields}


def _off(step: int) -> dict[str, Any]:
    return {"k": "profiler", "step": step, "on": False}


def _built(directory: Path, *records: dict[str, Any]) -> Profiled:
    recording = recorded(directory, steps(WALL_US, N), site(3, 12), sites_window(), *records)
    built = profiled.build(recording, selected(recording))
    assert isinstance(built, Profiled)
    return built


def test_one_that_never_ends_is_on_in_all_steps(tmp_path: Path) -> None:
    built = _built(tmp_path, _on(0), TIMING)
    assert (built.share, built.ending_share, built.options) == (1.0, 0.0, ("with_stack",))
    assert built.site is not None and built.site.line == 12
    assert built.timed_ms == pytest.approx(50 * 2.0 / 1000)


@pytest.mark.parametrize(
    ("records", "share"),
    [
        ([_on(2), _off(40)], 0.0),
        ([_on(2, ends=True)], 0.0),
        ([_on(74)], 0.52),
        ([one for step in range(0, N, 5) for one in (_on(step), _off(step + 3))], 0.6),
    ],
    ids=["ended in the first half", "ends by its schedule", "began late", "three steps of five"],
)
def test_only_steps_of_one_that_does_not_end_count(tmp_path: Path, records: list[Any], share: float) -> None:
    built = _built(tmp_path, *records, TIMING)
    assert built.share == pytest.approx(share, abs=0.03)
    assert built.ending_share == (1.0 if records[0]["ends"] else 0.0)


def test_without_a_profiler_or_a_timing_nothing_is_told(tmp_path: Path) -> None:
    recording = recorded(tmp_path, steps(WALL_US, N))
    assert isinstance(profiled.build(recording, selected(recording)), Missing)
    assert isinstance(_built(tmp_path, _on(0)).timed_ms, Missing)


def test_deterministic_algorithms_have_the_line_and_the_timing(tmp_path: Path) -> None:
    on = settings(deterministic=True, deterministic_at=3)
    untimed = deterministic(recorded(tmp_path, site(3, 12), on))
    assert not isinstance(untimed, Missing) and isinstance(untimed.timing, Missing)
    assert untimed.site is not None and untimed.site.line == 12
    timed = {"k": "timings", "deterministic": {"now_ms": 3.0, "off_ms": 2.0, "unfilled_ms": 2.5}}
    found = deterministic(recorded(tmp_path, site(3, 12), on, timed))
    assert not isinstance(found, Missing) and not isinstance(found.timing, Missing)
    assert (found.timing.now_ms, found.timing.off_ms, found.timing.unfilled_ms) == (3.0, 2.0, 2.5)
    assert isinstance(deterministic(recorded(tmp_path, settings())), Missing)
