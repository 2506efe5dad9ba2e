from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recordings import WALL_US, full_collection, recorded, selected, settings, site, steps

from perfdoctor.evidence import garbage
from perfdoctor.evidence.model import GarbageCollection, Missing, Site

N = 101


def _built(directory: Path, *records: dict[str, Any], pauses: list[int] | int = 0) -> GarbageCollection:
    """A hundred steady steps of 10 ms and what the records say; `pauses` are the gc column."""
    recording = recorded(directory, steps(WALL_US, N, gc_us=pauses), *records)
    return garbage.build(recording, selected(recording))


def test_explicit_collections_are_told_apart_by_line(tmp_path: Path) -> None:
    every_step = [full_collection(step, 2_000, site=1, collected=10) for step in range(N)]
    rare = [full_collection(step, 5_000, site=2) for step in (10, 60)]
    built = _built(tmp_path, site(1, 31), site(2, 90), *every_step, *rare, pauses=2_100)
    assert [found.site for found in built.explicit] == [Site("train.py", 31, "main"), Site("train.py", 90, "main")]
    assert [found.ms_per_step for found in built.explicit] == [pytest.approx(2.0), pytest.approx(0.1)]
    assert [found.pause_ms for found in built.explicit] == [pytest.approx(2.0), pytest.approx(5.0)]
    assert built.explicit[0].calls_per_step == pytest.approx(1.0)


def test_the_automatic_part_is_what_no_line_asked_for(tmp_path: Path) -> None:
    explicit = [full_collection(step, 2_000, site=1) for step in range(N)]
    built = _built(tmp_path, site(1, 31), *explicit, pauses=2_500)
    assert built.ms_per_step == pytest.approx(2.5)
    assert built.automatic_ms_per_step == pytest.approx(0.5)


def test_a_collection_of_a_young_generation_may_be_explicit_too(tmp_path: Path) -> None:
    built = _built(
        tmp_path, site(1, 31), *[full_collection(s, 500, site=1, generation=0) for s in range(N)], pauses=500
    )
    assert built.explicit[0].ms_per_step == pytest.approx(0.5)
    assert built.per_step[2] == 0.0


def test_collections_outside_the_steady_steps_do_not_count(tmp_path: Path) -> None:
    built = _built(tmp_path, site(1, 31), full_collection(0, 90_000, site=1), full_collection(N + 5, 90_000))
    assert built.explicit == ()
    assert built.longest_pause_ms == 0.0


def test_pauses_and_what_they_freed(tmp_path: Path) -> None:
    events = [full_collection(10, 60_000, collected=100), full_collection(50, 80_000, collected=300)]
    built = _built(tmp_path, *events, pauses=[60_000 if i in (10, 50) else 0 for i in range(N)])
    assert built.longest_pause_ms == pytest.approx(80.0)
    assert built.full_collected == 200.0
    assert built.per_step[2] == pytest.approx(0.02)
    assert built.explicit == ()


def test_young_collections_are_counted_per_step(tmp_path: Path) -> None:
    blocks = [{"k": "gc", "step": s, "counts": [5, 1, 0]} for s in (20, 40, 60, 80, 100)]
    assert _built(tmp_path, *blocks).per_step[:2] == (pytest.approx(0.25), pytest.approx(0.05))


def test_young_collections_of_the_warm_up_are_not_counted(tmp_path: Path) -> None:
    early = {"k": "gc", "step": 1, "counts": [500, 100, 0]}
    assert _built(tmp_path, early).per_step[:2] == (0.0, 0.0)


def test_objects_that_nobody_counted_are_missing(tmp_path: Path) -> None:
    assert isinstance(_built(tmp_path).tracked_objects, Missing)
    assert _built(tmp_path, {"k": "end", "tracked_objects": 170_000}).tracked_objects == 170_000


def test_the_collectors_state_is_that_of_the_second_step(tmp_path: Path) -> None:
    assert _built(tmp_path, settings()).enabled
    assert not _built(tmp_path, settings(gc_enabled=False)).enabled


def test_what_is_asked_for_in_a_few_long_steps_is_rare(tmp_path: Path) -> None:
    long = range(5, N, 10)
    walls = [300_000 if i in long else 10_000 for i in range(N)]
    events = [full_collection(step, 290_000, site=1, collected=7) for step in long]
    known = {"k": "long_steps", "step": 40, "at": 15, "length": 10}
    recording = recorded(tmp_path, steps(walls, N), site(1, 31), known, *events)
    built = garbage.build(recording, selected(recording))
    assert built.ms_per_step == 0.0 and built.full_collected == 7
    (rare,) = built.explicit
    assert rare.is_rare and rare.site == Site("train.py", 31, "main")
    assert rare.calls_per_step == pytest.approx(0.1, rel=0.05)
    assert rare.ms_per_step == pytest.approx(29.0, rel=0.05)
