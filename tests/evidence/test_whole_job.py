"""The job that perfdoctor ended, extrapolated to the steps that its loop says it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recordings import batches, boundary, iterator, recorded, settings, steps

from perfdoctor.evidence import anatomy, steady
from perfdoctor.evidence.model import JobAnatomy, Missing, WholeJob
from perfdoctor.recording.model import RunFacts

MS = 1000
"""Microseconds."""
STEP = 10 * MS
TRAINING, VALIDATION = 1, 2
SEEN, IN_ALL, EPOCH = 120, 1_200, 40


def job(directory: Path, *records: dict[str, Any], walls: Any = None, end: str = "stopped", **plan: Any) -> JobAnatomy:
    rows = list(walls if walls is not None else [STEP] * SEEN)
    planned = {"k": "planned", "step": len(rows), "steps": IN_ALL, "epoch": EPOCH, **plan}
    recording = recorded(directory, boundary("optimizer"), settings(), steps(rows, len(rows)), planned, *records)
    built = anatomy.build(recording, steady.select(recording), RunFacts(end=end))
    assert isinstance(built, JobAnatomy)
    return built


def whole(directory: Path, *records: dict[str, Any], **more: Any) -> WholeJob:
    found = job(directory, *records, **more).whole
    assert isinstance(found, WholeJob)
    assert found.parts.total == pytest.approx(found.wall_ms)
    return found


def evaluated(*at: int) -> list[dict[str, Any]]:
    """Evaluations of 200 ms."""
    rows = {"step": list(at), "us": 200 * MS, "forwards": 8, "forward_us": 100 * MS, "loader": VALIDATION}
    return [batches(range(SEEN), 0, loader=TRAINING), {"k": "evaluations", "n": len(at), **rows}]


def longer(*at: int, by: int = 200 * MS) -> list[int]:
    return [STEP + (by if number in at else 0) for number in range(SEEN)]


def test_steps_to_come_take_what_those_took_that_were_seen(tmp_path: Path) -> None:
    found = whole(tmp_path, walls=[500 * MS] + [STEP] * (SEEN - 1))
    assert found.parts.first_step == pytest.approx(500)
    assert found.parts.steady == pytest.approx(10 * (IN_ALL - 1))
    assert found.steps == IN_ALL and found.by == "loops" and not found.at_most


def test_a_job_that_trains_on_after_its_loop_is_not_extrapolated(tmp_path: Path) -> None:
    places = {"k": "site", "id": 7, "file": "train.py", "line": 30, "function": "main"}
    found = job(tmp_path, places, {"k": "afterwards", "step": SEEN, "site": 7}).whole
    assert isinstance(found, Missing) and found.code == "trains-on" and "train.py:30" in found.reason


def test_what_comes_at_regular_steps_goes_on_so(tmp_path: Path) -> None:
    found = whole(tmp_path, *evaluated(40, 80), walls=longer(40, 80))
    assert found.parts.evaluation == pytest.approx(200 * IN_ALL / EPOCH, rel=0.05)
    assert found.parts.steady == pytest.approx(10 * IN_ALL, rel=0.02)
    assert "evaluation" not in found.unseen + found.once


def test_what_comes_in_pairs_is_not_taken_for_more_often(tmp_path: Path) -> None:
    at = (38, 39, 78, 79, 118, 119)
    saving = [100 * MS if number in at else 0 for number in range(SEEN)]
    rows = steps(longer(*at, by=100 * MS), SEEN, checkpoint_us=saving)
    plan = {"k": "planned", "step": SEEN, "steps": IN_ALL, "epoch": EPOCH}
    recording = recorded(tmp_path, boundary("optimizer"), settings(), rows, plan)
    built = anatomy.build(recording, steady.select(recording), RunFacts(end="stopped"))
    assert isinstance(built, JobAnatomy) and isinstance(built.whole, WholeJob)
    assert built.whole.parts.checkpoints == pytest.approx(2 * 100 * IN_ALL / EPOCH, rel=0.05)


@pytest.mark.parametrize(
    ("epoch", "times", "once"), [(80, IN_ALL / 80, ()), (600, 1, ("evaluation",)), (0, 1, ("evaluation",))]
)
def test_a_single_evaluation_counts_by_epoch_or_once(
    tmp_path: Path, epoch: int, times: float, once: tuple[str, ...]
) -> None:
    found = whole(tmp_path, *evaluated(80), walls=longer(80), epoch=epoch)
    assert found.parts.evaluation == pytest.approx(200 * times, rel=0.05)
    assert found.once == once


def test_what_was_not_seen_is_said(tmp_path: Path) -> None:
    assert whole(tmp_path).unseen == ("epoch_starts", "evaluation", "checkpoints")
    assert whole(tmp_path, epoch=0).unseen == ("evaluation", "checkpoints")


def test_epochs_start_as_often_as_the_loader_is_gone_through(tmp_path: Path) -> None:
    starts = [iterator(number, 50 * MS, TRAINING) for number in (0, 40, 80)]
    found = whole(tmp_path, batches(range(SEEN), 0, loader=TRAINING), *starts, walls=longer(40, 80, by=60 * MS))
    assert found.parts.epoch_starts == pytest.approx(60 * (IN_ALL / EPOCH - 1), rel=0.1)


def test_perfdoctor_itself_is_no_part_of_it(tmp_path: Path) -> None:
    observed = job(tmp_path, settings(start_ms=50.0))
    assert observed.parts.observing == pytest.approx(50)
    assert isinstance(observed.whole, WholeJob) and observed.whole.parts.observing == 0


@pytest.mark.parametrize("slope", [0.003, -0.003])
def test_steps_that_drift_are_not_extrapolated(tmp_path: Path, slope: float) -> None:
    noise = np.random.default_rng(1).normal(0, 0.02, SEEN)
    walls = (STEP * (1 + slope * np.arange(SEEN) + noise)).astype(int).tolist()
    found = job(tmp_path, walls=walls).whole
    assert isinstance(found, Missing) and found.code == "drifts"


def test_steps_of_varying_length_that_do_not_drift_are(tmp_path: Path) -> None:
    noise = np.random.default_rng(2).normal(0, 0.1, SEEN)
    walls = (STEP * (1 + noise)).astype(int).tolist()
    assert whole(tmp_path, walls=walls).parts.steady == pytest.approx(10 * IN_ALL, rel=0.05)


def test_nothing_is_extrapolated_that_was_seen_or_is_not_known(tmp_path: Path) -> None:
    for more in ({"end": "finished"}, {"steps": SEEN}, {"walls": [STEP] * 20}):
        found = job(tmp_path, **more).whole
        assert isinstance(found, Missing) and found.code == ""
