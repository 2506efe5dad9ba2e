"""Batches that take longer and longer, told from those that vary, jump, or belong to few workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recordings import batches, fetches, loader, recorded, selected, site, steps, worker

from perfdoctor.evidence import slower_batches
from perfdoctor.evidence.model import SlowerBatches

N = 200
RNG = np.random.default_rng(5)


def _built(directory: Path, *makers: Any, num_workers: int = 2, own: Any = None) -> SlowerBatches | None:
    """`makers`: what each worker's batches took, us, or its records; `own`: those of the training process."""
    records = [loader(num_workers=num_workers), steps([10_000] * N), batches(range(N), 5_000)]
    rank = recorded(directory, *records, *([fetches(own.astype(int).tolist())] if own is not None else []))
    workers = []
    for number, maker in enumerate(makers):
        (folder := directory / str(number)).mkdir()
        told = maker if isinstance(maker, list) else [fetches(maker.astype(int).tolist())]
        workers.append(recorded(folder, worker(number), *told))
    return slower_batches.build(rank, workers, selected(rank))


def _growing(count: int = 100) -> Any:
    return 20_000 + 200 * np.arange(count) + 500 * RNG.standard_normal(count)


def test_workers_whose_batches_get_slower_are_told_with_what_the_loop_waits_for_it(tmp_path: Path) -> None:
    found = _built(tmp_path, _growing(), _growing())
    assert found is not None and found.num_workers == 2
    assert found.early_ms == pytest.approx(20.0, rel=0.1) and found.late_ms == pytest.approx(40.0, rel=0.1)
    assert found.wait_ms == pytest.approx((found.late_ms - found.early_ms) / 2)
    assert found.getitem_ms == pytest.approx(20.0, rel=0.1) and found.low > 0.5


@pytest.mark.parametrize(
    "took",
    [
        20_000 + 2_000 * RNG.standard_normal(100),
        np.where(np.arange(100) < 50, 20_000, 40_000),
        _growing(25),
        20_000 + 400 * (np.arange(100) % 25),
    ],
    ids=["varies", "jumps", "few", "starts again"],
)
def test_what_varies_jumps_or_starts_again_is_not_slower(tmp_path: Path, took: Any) -> None:
    assert _built(tmp_path, took, took) is None


def test_one_slow_worker_of_two_is_not_the_loader(tmp_path: Path) -> None:
    assert _built(tmp_path, _growing(), np.full(100, 20_000)) is None


def test_in_the_training_process_only_some_of_the_later_batches_were_timed(tmp_path: Path) -> None:
    """200 batches, and then one in eight: a rate that stays the same over all of them."""
    number = np.array([*range(200), *range(200, 1000, 8)])
    found = _built(tmp_path, num_workers=0, own=5_000 + 20 * number)
    assert found is not None and found.late_ms == pytest.approx(25.0, rel=0.05)
    assert found.wait_ms == pytest.approx(found.late_ms - found.early_ms)


@pytest.mark.parametrize(("told", "late_ms"), [(True, 15.0), (False, 8.0)], ids=["by loader", "an older recording"])
def test_of_two_loaders_it_is_the_one_whose_batches_get_slower(tmp_path: Path, told: bool, late_ms: float) -> None:
    """By turns batches of 5 ms and more, and of 1 ms."""
    number = np.arange(200)
    took = np.where(number % 2, 1_000, 5_000 + 50 * number).astype(int).tolist()
    rank = recorded(
        tmp_path,
        loader(1),
        loader(2, dataset="Masks"),
        steps([10_000] * N),
        batches([step for step in range(N) for _ in range(2)], 3_000, loader=[1, 2] * N),
        fetches(took, loader=(1 + number % 2).tolist() if told else -1),
    )
    found = slower_batches.build(rank, (), selected(rank))
    assert found is not None and found.dataset == "Images"
    assert found.late_ms == pytest.approx(late_ms, rel=0.05)
    assert found.wait_ms == pytest.approx((found.late_ms - found.early_ms) * (1 if told else 2))


def _making(kind: str, share: float) -> dict[str, Any]:
    line = {"site": 1, "part": "other", "called": True, "ms_per_step": 1.0, "share": share}
    rest = {"site": 2, "part": "other", "called": False, "ms_per_step": 1.0, "share": 1 - share}
    return {"k": kind, "lines": [line, rest], "total_ms": 2.0}


def test_a_line_of_the_data_set_is_compared_between_two_batches_of_a_worker(tmp_path: Path) -> None:
    kept = {"name": "dataset.seen", "kind": "list", "length": 900, "per_step": 8.0, "tensors": 0.0, "graphs": 0.0}
    growth = {"k": "growth", "step": 90, "containers": [{**kept, "bytes_per_step": 0, "site": 1}], "graphs": []}
    took = fetches(_growing().astype(int).tolist())
    watched = [site(1, 12, "/home/ann/job/data.py"), site(2, 3), took, _making("making", 0.1), growth]
    found = _built(tmp_path, [*watched, _making("later_making", 0.55)], _growing())
    assert found is not None and [one.name for one in found.containers] == ["dataset.seen"]
    (line,) = found.lines
    assert (
        line.site.line == 12
        and line.early_ms == pytest.approx(2.0, rel=0.1)
        and line.share == pytest.approx(1.0, rel=0.15)
    )
