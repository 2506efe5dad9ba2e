"""Steps that get longer, told apart from steps that vary, jump or hiccup."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recordings import autocorrelated, recorded, selected, site, steps, window

from perfdoctor.evidence import trend
from perfdoctor.evidence.model import Missing, StepGrowth, Trend

RNG = np.random.default_rng(3)


def _built(directory: Path, wall_us: Any, *records: dict[str, Any], **columns: Any) -> StepGrowth:
    recording = recorded(directory, steps(np.asarray(wall_us).astype(int).tolist(), **columns), *records)
    return trend.build(recording, (), selected(recording))


def _trend(directory: Path, wall_us: Any, **columns: Any) -> Trend:
    found = _built(directory, wall_us, **columns).trend
    assert isinstance(found, Trend)
    return found


def test_steps_that_grow_evenly_have_a_narrow_interval_around_their_growth(tmp_path: Path) -> None:
    found = _trend(tmp_path, 10_000 + 50 * np.arange(200) + 300 * RNG.standard_normal(200))
    assert found.is_gradual
    assert 0.9 < found.low < found.grown_ms / found.early_ms + 0.1 and found.high < 1.1
    assert found.late_ms == pytest.approx(20.0, rel=0.06)


@pytest.mark.parametrize("seed", range(8))
def test_steps_that_only_vary_do_not_grow(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    assert _trend(tmp_path, 10_000 + 1_000 * autocorrelated(rng, 300, 0.8)).low < 0.1


def test_one_jump_is_not_gradual(tmp_path: Path) -> None:
    assert not _trend(tmp_path, np.where(np.arange(200) < 100, 10_000, 20_000) + np.arange(200)).is_gradual


def test_cpu_time_that_grows_evenly_tells_growth_beside_a_neighbour(tmp_path: Path) -> None:
    steps_us = 2_000 + 20 * np.arange(200)
    beside = np.where(np.arange(200) < 110, steps_us, 10 * steps_us)
    assert not _trend(tmp_path, beside + 8_000 * (np.arange(200) < 50), cpu_us=2_000).is_gradual
    assert _trend(tmp_path, beside + 8_000 * (np.arange(200) < 50), cpu_us=steps_us.tolist()).is_gradual


def test_hiccups_make_no_trend(tmp_path: Path) -> None:
    walls = np.full(200, 10_000)
    walls[150:200:9] = 90_000
    assert _trend(tmp_path, walls).low < 0.05


def test_lengths_that_start_again_with_every_epoch_are_no_growth(tmp_path: Path) -> None:
    found = _trend(tmp_path, 10_000 + 100 * (np.arange(300) % 50))
    assert found.low < 0.1 or not found.is_gradual


def test_caches_that_fill_in_the_first_steps_make_no_growth(tmp_path: Path) -> None:
    """Steps get shorter, and are even from then on."""
    walls = np.where(np.arange(400) < 100, 30_000, 10_000) + 300 * RNG.standard_normal(400)
    assert _trend(tmp_path, walls).low < 0.1


def test_a_buffer_that_fills_once_and_stays_as_it_is_is_no_growth(tmp_path: Path) -> None:
    filling = np.minimum(np.arange(300), 60) * 100
    found = _trend(tmp_path, 10_000 + filling + 300 * RNG.standard_normal(300))
    assert found.low < 0.1 or not found.is_gradual


@pytest.mark.parametrize("seen", [75, 110, 130, 190])
def test_epochs_that_begin_with_the_shortest_are_no_growth_wherever_they_end(tmp_path: Path, seen: int) -> None:
    found = _trend(tmp_path, (10_000 + 100 * (np.arange(300) % 50))[:seen])
    assert found.low < 0.1 or not found.is_gradual


def test_the_part_that_grows_is_told(tmp_path: Path) -> None:
    grown = 50 * np.arange(200)
    found = _trend(tmp_path, 10_000 + grown, forward_us=3_000, backward_us=(2_000 + grown).tolist(), cpu_us=9_000)
    assert found.parts.backward == pytest.approx(10.0, rel=0.05)
    assert found.parts.forward == pytest.approx(0.0) and found.parts.other == pytest.approx(0.0, abs=0.1)
    assert found.cpu_ms == pytest.approx(0.0)


def test_a_few_steps_have_no_trend(tmp_path: Path) -> None:
    assert isinstance(_built(tmp_path, [10_000] * 25).trend, Missing)


def _lines(name: str, first_step: int, share: float) -> dict[str, Any]:
    slow = {"site": 1, "part": "other", "called": False, "ms_per_step": 1.0, "share": share}
    even = {"site": 2, "part": "other", "called": False, "ms_per_step": 1.0, "share": 1 - share}
    return window(name, first_step=first_step, lines=[slow, even], total_ms=2.0)


GREW = {"k": "growth", "step": 190, "containers": [], "graphs": []}


def test_a_line_is_compared_between_two_windows(tmp_path: Path) -> None:
    walls = 10_000 + 100 * np.arange(200)
    windows = (_lines("lines", 20, 0.0), _lines("later", 180, 16 / 28))
    line, *others = _built(tmp_path, walls, site(1, 31), site(2, 32), GREW, *windows).lines
    assert line.site.line == 31 and line.early_ms == 0.0
    assert line.late_ms == pytest.approx(16.0, rel=0.05) and line.share == pytest.approx(1.0, rel=0.1)
    assert sum(other.share for other in others) < 0.05


def test_without_a_second_window_no_line_is_told(tmp_path: Path) -> None:
    walls = 10_000 + 100 * np.arange(200)
    windows = (site(1, 31), site(2, 32), _lines("lines", 20, 0.1))
    assert _built(tmp_path, walls, *windows, GREW).lines == ()
