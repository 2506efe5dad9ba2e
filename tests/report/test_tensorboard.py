"""Events for TensorBoard, read back by its own reader."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import diagnosis_samples as samples
import numpy as np
import pytest

from perfdoctor.commands import outputs
from perfdoctor.config.settings import Config
from perfdoctor.diagnosis.diagnoses import Diagnosis
from perfdoctor.errors import PerfdoctorError
from perfdoctor.evidence.model import Parts
from perfdoctor.evidence.series import StepSeries, series
from perfdoctor.recording.directory import RunDirectory
from perfdoctor.recording.reader import read
from perfdoctor.report.tensorboard import MOST_POINTS, write_tensorboard
from perfdoctor.trials.judge import judge

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
DEMO = RunDirectory(Path(__file__).parents[1] / "recordings" / "demo")


def steps(rank: int, count: int = 8, **parts_ms: float) -> StepSeries:
    numbers = np.arange(count)
    parts = {name: np.full(count, parts_ms.get(name, 0.0)) for name in Parts().as_dict()}
    return StepSeries(rank, numbers, numbers * 0.5 + 1.0, parts)


def events(folder: Path) -> accumulator.EventAccumulator:
    found = accumulator.EventAccumulator(str(folder), size_guidance=dict.fromkeys(("scalars", "tensors"), 0))
    return found.Reload()


def values(folder: Path, tag: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in events(folder).Scalars(tag)]


def text(folder: Path, tag: str) -> str:
    (event,) = events(folder).Tensors(f"{tag}/text_summary")
    return str(event.tensor_proto.string_val[0].decode())


def test_the_parts_of_a_recorded_job_are_curves_that_add_up(tmp_path: Path) -> None:
    (rank,) = series(read(DEMO))
    write_tensorboard(tmp_path, judge(DEMO, Config()), [rank])
    tags = [tag for tag in events(tmp_path).Tags()["scalars"] if tag.startswith("step_ms/")]
    assert {"step_ms/total", "step_ms/forward", "step_ms/gc"} <= set(tags)
    assert "step_ms/communication" not in tags, "one rank waits for no other"
    total = dict(values(tmp_path, "step_ms/total"))
    parts = [dict(values(tmp_path, tag)) for tag in tags if tag != "step_ms/total"]
    assert list(total) == list(rank.step)
    assert [sum(part[step] for part in parts) for step in total] == pytest.approx(list(total.values()), rel=1e-4)


def test_findings_are_texts_and_their_speed_ups_numbers(tmp_path: Path) -> None:
    write_tensorboard(tmp_path, samples.tried(), [])
    finding = text(tmp_path, "finding/PD03.too-few-workers")
    assert "**The loop waits 14.2 ms per step" in finding
    assert "num_workers=3" in finding
    assert "<details>" not in finding
    report = text(tmp_path, "perfdoctor/report")
    assert "The steady step takes 24.8 ms" in report
    assert "| waiting for data | 14.2 ms | 57 % | ████" in report
    (low,) = values(tmp_path, "speed_up_predicted/PD03.too-few-workers/low")
    (high,) = values(tmp_path, "speed_up_predicted/PD03.too-few-workers/high")
    assert (low[1], high[1]) == pytest.approx((24.8 / (24.8 - 11.2), 24.8 / (24.8 - 13.4)))
    assert values(tmp_path, "speed_up_measured/etl.workers-3") == [(0, pytest.approx(1.93))]
    assert values(tmp_path, "speed_up_measured/etl.workers-3_gc.no-explicit/low") == [(0, pytest.approx(2.2))]


def test_ranks_are_runs_beside_each_other_with_the_same_tags(tmp_path: Path) -> None:
    write_tensorboard(tmp_path, samples.two_findings(), [steps(0, forward=3.0), steps(1, forward=2.0, gc=1.0)])
    assert values(tmp_path / "rank-0", "step_ms/forward")[0] == (0, 3.0)
    assert values(tmp_path / "rank-1", "step_ms/forward")[0] == (0, 2.0)
    assert not any(tag.startswith("step_ms/") for tag in events(tmp_path).Tags()["scalars"])


def test_processes_without_a_group_do_not_share_a_folder(tmp_path: Path) -> None:
    write_tensorboard(tmp_path, samples.healthy(), [steps(0, forward=3.0), steps(0, forward=2.0)])
    assert values(tmp_path / "process-1", "step_ms/total")[0] == (0, 2.0)


def test_the_time_of_a_point_is_that_of_its_step(tmp_path: Path) -> None:
    write_tensorboard(tmp_path, samples.healthy(), [steps(0, 3, forward=1.0)])
    times = [event.wall_time for event in events(tmp_path).Scalars("step_ms/total")]
    assert np.diff(times) == pytest.approx([0.5, 0.5])
    assert times[0] == pytest.approx(1795218601.0)  # a second after 2026-11-20T23:50:00Z


def test_long_recordings_are_averaged_and_keep_their_sum() -> None:
    many = steps(0, 10_500, forward=1.0)
    many = replace(many, parts={**many.parts, "gc": np.where(many.step % 100 == 0, 50.0, 0.0)})
    few = many.averaged(MOST_POINTS)
    assert len(few.step) == 955
    assert few.step[-1] == many.step[-1]
    assert few.parts["gc"][:-1].mean() == pytest.approx(0.5, rel=0.01)


def test_writing_again_replaces_what_was_there_and_leaves_the_files_of_others(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.1.host").write_bytes(b"")
    for _ in range(2):
        write_tensorboard(tmp_path, samples.two_findings(), [steps(0, forward=3.0)])
    assert len(values(tmp_path, "step_ms/total")) == 8
    assert (tmp_path / "events.out.tfevents.1.host").exists()


@pytest.mark.parametrize("make", samples.ALL)
def test_every_diagnosis_can_be_written(tmp_path: Path, make: object) -> None:
    assert callable(make)
    diagnosis: Diagnosis = make()
    write_tensorboard(tmp_path, diagnosis, [])
    assert text(tmp_path, "perfdoctor/report").startswith("**")


def test_a_folder_is_needed_and_a_comparison_has_none(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for word in ("tensorboard", "tensorboard:", f"tensorboard:{file}", f"tensorboard:{file}/below"):
        with pytest.raises(PerfdoctorError, match=r"folder|cannot write"):
            outputs.parse([word])
    console, board = outputs.parse([f"tensorboard:{tmp_path / 'new' / 'place'}"])
    assert (console.format, board.path) == ("console", tmp_path / "new" / "place")
    with pytest.raises(PerfdoctorError, match="no output format tensorboard"):
        outputs.parse([f"tensorboard:{tmp_path}"], outputs.OF_COMPARISONS)


def test_without_the_package_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "find_spec", lambda name: None)
    with pytest.raises(PerfdoctorError) as error:
        outputs.parse(["tensorboard:runs"])
    assert "pip install tensorboard" in error.value.advice
