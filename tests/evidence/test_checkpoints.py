"""Checkpoints are billed over all steps, those that save included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recordings import recorded, selected, site, steps

from perfdoctor.evidence import checkpoints, steady
from perfdoctor.evidence.model import Checkpoints, Missing

N = 201


def _built(directory: Path, every: int, extra_us: int = 0, *records: dict[str, Any]) -> Checkpoints:
    """Steps of 10 ms; every so many one that saves for 30 more, and takes more besides."""
    saved = [30_000 if step % every == every - 1 else 0 for step in range(N)]
    walls = [10_000 + us + extra_us * (us > 0) for us in saved]
    recording = recorded(directory, steps(walls, checkpoint_us=saved), *records)
    selection = selected(recording)
    found = checkpoints.build(recording, selection, steady.measure(recording, selection))
    assert isinstance(found, Checkpoints)
    return found


def test_steps_that_save_are_no_steady_ones_and_count_all_the_same(tmp_path: Path) -> None:
    found = _built(tmp_path, 10)
    assert not found.is_steady and found.saves == 20
    assert (found.every, found.save_ms) == (pytest.approx(10.0), pytest.approx(30.0))
    assert found.ms_per_step == pytest.approx(3.0) and found.most_ms_per_step == pytest.approx(3.0)


def test_what_prepares_a_checkpoint_is_in_the_most(tmp_path: Path) -> None:
    found = _built(tmp_path, 10, 8_000)
    assert found.save_ms == pytest.approx(30.0) and found.most_ms == pytest.approx(38.0)


def test_saves_in_every_other_step_are_a_part_of_the_steady_step(tmp_path: Path) -> None:
    found = _built(tmp_path, 2)
    assert found.is_steady and found.ms_per_step == pytest.approx(15.0)


def test_a_job_that_does_not_save_has_none(tmp_path: Path) -> None:
    found = _built(tmp_path, N + 1)
    assert (found.saves, found.ms_per_step, found.site) == (0, 0.0, None)


@pytest.mark.parametrize(("first", "later", "told"), [(30, 6, 6), (30, 20, None), (6, 3, None), (10, 30, None)])
def test_saves_that_get_rarer_are_counted_in_the_later_half(
    tmp_path: Path, first: int, later: int, told: int | None
) -> None:
    """As of a job that saves whenever it is better than before."""
    half = 100
    places = {3 * number + 1 for number in range(first)} | {half + 3 * number + 1 for number in range(later)}
    saved = [30_000 if step in places else 0 for step in range(2 * half)]
    recording = recorded(tmp_path, steps([10_000 + us for us in saved], checkpoint_us=saved))
    selection = selected(recording)
    found = checkpoints.build(recording, selection, steady.measure(recording, selection))
    assert isinstance(found, Checkpoints)
    assert found.late_saves == told or (told is not None and found.late_saves in (told - 1, told, told + 1))


def test_one_save_says_nothing_of_the_next(tmp_path: Path) -> None:
    found = _built(tmp_path, 150)
    assert found.saves == 1 and found.every == found.steps


def test_the_line_that_saves_longest_speaks_for_them(tmp_path: Path) -> None:
    calls = [
        {"k": "call", "kind": "save", "site": 1, "count": 4, "us": 900, "bytes": 400, "step": 100},
        {"k": "call", "kind": "save", "site": 2, "count": 2, "us": 9_000, "bytes": 8_000, "step": 100},
        {"k": "call", "kind": "empty_cache", "site": 3, "count": 9, "us": 99_000, "step": 100},
    ]
    held = {"k": "saved", "site": 2, "tensor_bytes": 3_900, "optimizer_bytes": 0, "storage_bytes": 3_900}
    found = _built(tmp_path, 10, 0, site(1, 31), site(2, 32), site(3, 33), *calls, held)
    assert found.site is not None and found.site.line == 32
    assert found.bytes == 4_000 and found.calls_per_save == pytest.approx(6 / 20)
    assert found.contents is not None and found.contents.tensor_bytes == 3_900


def test_what_a_later_checkpoint_has_as_it_was_is_told_of_the_first(tmp_path: Path) -> None:
    call = {"k": "call", "kind": "save", "site": 1, "count": 4, "us": 900, "bytes": 400, "step": 100}
    held = {"k": "saved", "site": 1, "tensor_bytes": 3_900, "optimizer_bytes": 0, "storage_bytes": 3_900}
    again = {**held, "tensor_bytes": 4_000, "unchanged_bytes": 3_000, "unchanged": "demos", "unchanged_at": 2}
    contents = _built(tmp_path, 10, 0, site(1, 31), site(2, 32), call, held, again, held).contents
    assert contents is not None and (contents.tensor_bytes, contents.unchanged_bytes) == (3_900, 3_000)
    assert not isinstance(contents.unchanged_at, Missing) and contents.unchanged_at.line == 32


def test_without_a_steady_step_nothing_is_told(tmp_path: Path) -> None:
    recording = recorded(tmp_path, steps(10_000, N))
    assert isinstance(checkpoints.build(recording, selected(recording), Missing("none")), Missing)


def _saves(*sizes: int, kind: str = "save") -> list[dict[str, Any]]:
    """Records of a line's calls, two each."""
    records = [
        {"k": "call", "kind": kind, "site": 1, "count": 2, "us": 60_000, "bytes": 2 * size, "step": 20 * (number + 2)}
        for number, size in enumerate(sizes)
    ]
    return [site(1, 80), *records]


@pytest.mark.parametrize(
    ("sizes", "grown"),
    [
        ((1_000, 2_000, 3_000, 4_000, 5_000), (1_000, 5_000)),
        ((1_000, 2_000, 2_000, 4_000), (1_000, 4_000)),  # chunks of a buffer
        ((1_000, 3_000, 3_000, 3_000, 3_000), (0, 0)),  # an optimizer's state, once
        ((1_000, 1_002, 999, 1_001), (0, 0)),
        ((1_000, 2_000, 1_000, 2_000, 4_000), (0, 0)),
        ((1_000, 2_000, 3_000), (0, 0)),
        ((1_000, 1_100, 1_250, 1_400), (0, 0)),
    ],
)
def test_a_line_that_writes_more_each_time_grows(
    tmp_path: Path, sizes: tuple[int, ...], grown: tuple[int, int]
) -> None:
    found = _built(tmp_path, 10, 0, *_saves(*sizes))
    assert (found.early_bytes, found.late_bytes) == grown and found.grows is (grown != (0, 0))


def test_time_in_fsync_is_that_of_a_step_that_saves(tmp_path: Path) -> None:
    found = _built(tmp_path, 10, 0, *_saves(0, 0, 0, 0, kind="fsync"))
    assert found.fsync_ms == pytest.approx(4 * 60 / 20) and found.fsyncs_per_save == pytest.approx(8 / 20)


def test_what_is_done_with_a_checkpoint_is_told_by_the_line_that_does_it_longest(tmp_path: Path) -> None:
    read = [
        {"k": "call", "kind": "save.with", "site": number, "count": 20, "us": us, "step": 100}
        for number, us in ((2, 100_000), (3, 300_000))
    ]
    found = _built(tmp_path, 10, 0, *_saves(4_000, 4_000), site(2, 81), site(3, 82), *read)
    assert found.site is not None and found.site.line == 80
    assert found.beside_at is not None and found.beside_at.line == 82
    assert found.beside_ms == pytest.approx(400 / 20) and found.is_mostly_beside


def test_what_compresses_as_it_writes_is_the_save_and_what_is_done_with_it(tmp_path: Path) -> None:
    found = _built(tmp_path, 10, 0, *_saves(*[4_000] * 10, kind="save.compressed"))
    assert found.is_mostly_beside
    assert found.site == found.beside_at is not None
    assert found.beside_ms == pytest.approx(found.save_ms)


def test_copies_from_a_device_are_those_of_a_step_that_saves(tmp_path: Path) -> None:
    """Hand-built: no GPU made this recording."""
    copies = [
        {"k": "call", "kind": "save.copy", "site": 1, "count": 40, "us": 200_000, "bytes": 40_000_000, "step": step}
        for step in (60, 120)
    ]
    held = {"k": "saved", "site": 1, "tensor_bytes": 4_000, "optimizer_bytes": 0, "storage_bytes": 4_000}
    held |= {"device_bytes": 4_000, "library": "torch.serialization", "us": 30_000, "cpu_us": 6_000}
    found = _built(tmp_path, 10, 0, *_saves(4_000, 4_000), *copies, held)
    assert found.copy_ms == pytest.approx(400 / 20) and found.copy_bytes == 80_000_000 / 20
    assert found.stage_ms == pytest.approx(20.0), "what lies on the device is staged by these copies"
    assert found.waiting_share == pytest.approx(0.8)


def test_staging_takes_what_a_copy_of_such_memory_took_here(tmp_path: Path) -> None:
    held = {"k": "saved", "site": 1, "tensor_bytes": 8_000_000, "optimizer_bytes": 0, "storage_bytes": 8_000_000}
    rate = {"copied_bytes": 4_000_000, "copied_us": 2_000}
    (tmp_path / "timed").mkdir()
    found = _built(tmp_path / "timed", 10, 0, *_saves(8_000_000, 8_000_000), held | rate)
    assert found.stage_ms == pytest.approx(4.0 * found.calls_per_save)
    assert found.copy_ms == 0.0 and found.waiting_share == 0.0
    (tmp_path / "untimed").mkdir()
    assert _built(tmp_path / "untimed", 10, 0, *_saves(8_000_000, 8_000_000), held).stage_ms is None
