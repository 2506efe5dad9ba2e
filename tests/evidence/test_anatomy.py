from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from recordings import (
    START_NS,
    batches,
    boundary,
    iterator,
    loader,
    process,
    recorded,
    sample,
    settings,
    site,
    steps,
    window,
)

from perfdoctor.evidence import anatomy, evaluation, steady
from perfdoctor.evidence.model import Evaluations, JobAnatomy, Missing, Site, UnloadedPasses
from perfdoctor.recording.model import RunFacts

MS = 1000
"""Microseconds."""
STEP = 10 * MS
TRAINING, VALIDATION = 1, 2


def evaluations(
    step: Sequence[int], us: int, *, forwards: int = 8, loader: int = VALIDATION, held_out: int = 0, **more: int
) -> dict[str, Any]:
    rows = {"step": list(step), "us": us, "forwards": forwards, "forward_us": us // 2, "loader": loader}
    rows["held_out"] = held_out
    return {"k": "evaluations", "n": len(step), **rows, **more}


def walls(n: int, **longer: int) -> list[int]:
    """Steps of 10 ms; `s40=90_000` is one that takes 90 ms longer."""
    return [STEP + longer.get(f"s{i}", 0) for i in range(n)]


def job(directory: Path, *records: dict[str, Any], **facts: Any) -> JobAnatomy:
    recording = recorded(directory, boundary("optimizer"), settings(), *records)
    built = anatomy.build(recording, steady.select(recording), RunFacts(**{"end": "finished", **facts}))
    assert isinstance(built, JobAnatomy)
    assert built.parts.total == pytest.approx(built.wall_ms)
    assert min(built.parts.as_dict().values()) >= 0
    return built


def evaluated(directory: Path, *records: dict[str, Any]) -> Evaluations | Missing:
    recording = recorded(directory, boundary("optimizer"), settings(), *records)
    return evaluation.build(recording, anatomy.build(recording, steady.select(recording), RunFacts()))


def test_what_a_trainer_keeps_is_told_of_an_evaluation_that_has_not_to_warm_up(tmp_path: Path) -> None:
    kept = {"k": "call", "kind": "collected", "site": 3, "count": 16, "bytes": 8_000_000}
    first, second = {**kept, "step": 31, "us": 70 * MS}, {**kept, "step": 61, "us": 20 * MS}
    rows = [evaluations([30, 60], 80 * MS), site(3, 70), first, second]
    loaders = [loader(TRAINING), loader(VALIDATION)]
    seen = evaluated(tmp_path, *loaders, trained(90), steps(walls(90, s30=80 * MS, s60=80 * MS), 90), *rows)
    assert isinstance(seen, Evaluations) and seen.collected is not None
    assert (seen.collected.ms, seen.collected.bytes) == (20.0, 8_000_000)
    assert isinstance(seen.collected.at, Site) and seen.collected.at.line == 70


def trained(n: int) -> dict[str, Any]:
    """A batch of the training loader in each step."""
    return batches(range(n), 0, loader=TRAINING)


# ---------------------------------------------------------------------------------------------------------
# The job


def test_a_job_that_only_trains_is_its_first_step_and_steady_ones(tmp_path: Path) -> None:
    seen = job(tmp_path, steps(walls(100, s0=500 * MS), 100))
    assert seen.parts.first_step == pytest.approx(510)
    assert seen.parts.steady == pytest.approx(990)
    assert seen.wall_ms == pytest.approx(1500)
    assert not seen.complete
    assert seen.steady_share == pytest.approx(0.66)


def test_what_comes_before_the_loop_is_start_imports_and_set_up(tmp_path: Path) -> None:
    rows = steps(STEP, 100)
    rows["t"] += 3_000_000_000  # three seconds between the first record and the first batch
    started = process(start=START_NS - 40_000_000)
    seen = job(tmp_path, started, rows, sample(1, import_us=2_000 * MS))
    assert seen.parts.start == pytest.approx(40)
    assert seen.parts.imports == pytest.approx(2000)
    assert seen.parts.set_up == pytest.approx(1000)
    assert seen.wall_ms == pytest.approx(4040)


def test_the_probe_is_loaded_while_torch_is_imported_and_counts_once(tmp_path: Path) -> None:
    rows = steps(STEP, 100)
    rows["t"] += 3_000_000_000
    seen = job(tmp_path, rows, sample(1, import_us=2_000 * MS), settings(start_ms=50.0))
    assert seen.parts.observing == pytest.approx(50)
    assert seen.parts.imports == pytest.approx(1950)
    assert seen.parts.set_up == pytest.approx(1000)


def test_the_end_is_when_the_job_was_gone(tmp_path: Path) -> None:
    rows = steps(STEP, 100)
    gone = rows["t"] + 900_000_000
    ended = {"k": "exit", "t": rows["t"] + 600_000_000, "checkpoint_us": 100 * MS, "own_us": 200 * MS}
    seen = job(tmp_path, rows, ended, ended_ns=gone)
    assert seen.complete
    assert seen.parts.after == pytest.approx(600)
    assert seen.parts.checkpoints == pytest.approx(100)
    assert seen.parts.observing == pytest.approx(200)


def test_a_job_that_was_killed_is_known_up_to_its_last_step(tmp_path: Path) -> None:
    rows = steps(STEP, 100)
    seen = job(tmp_path, rows, ended_ns=rows["t"] + 900_000_000)
    assert not seen.complete
    assert seen.parts.after == 0


def test_checkpoints_and_logging_are_taken_out_of_their_steps(tmp_path: Path) -> None:
    saving = [200 * MS if i in (50, 99) else 0 for i in range(100)]
    rows = steps(walls(100, s50=200 * MS, s99=200 * MS), 100, checkpoint_us=saving, logging_us=2 * MS)
    seen = job(tmp_path, rows)
    assert seen.parts.checkpoints == pytest.approx(400)
    assert seen.parts.logging == pytest.approx(200)
    assert seen.parts.steady == pytest.approx(99 * 8)
    assert seen.parts.between == pytest.approx(0, abs=1e-6)


def test_an_epochs_start_is_what_its_step_takes_longer(tmp_path: Path) -> None:
    starts = [iterator(i, 40 * MS, TRAINING) for i in (0, 25, 50, 75)]
    rows = steps(walls(100, s25=60 * MS, s50=60 * MS, s75=60 * MS), 100)
    seen = job(tmp_path, rows, trained(100), *starts)
    assert seen.parts.epoch_starts == pytest.approx(180)
    assert seen.parts.steady == pytest.approx(990)


def test_short_epochs_are_no_steady_steps_however_many(tmp_path: Path) -> None:
    longer = {f"s{i}": 60 * MS for i in range(4, 100, 4)}
    starts = [iterator(i, 50 * MS, TRAINING) for i in range(0, 100, 4)]
    seen = job(tmp_path, steps(walls(100, **longer), 100), trained(100), *starts)
    # But for those of the warm-up.
    assert seen.parts.epoch_starts == pytest.approx(24 * 60, rel=0.06)


def test_an_evaluation_has_what_its_step_takes_longer_but_for_the_epochs_start(tmp_path: Path) -> None:
    rows = steps(walls(100, s50=330 * MS), 100, micro=[9 if i == 50 else 1 for i in range(100)])
    starts = (iterator(50, 30 * MS, TRAINING), iterator(50, 5 * MS, VALIDATION))
    seen = job(tmp_path, rows, trained(100), evaluations([50], 250 * MS), *starts)
    assert seen.parts.epoch_starts == pytest.approx(30)
    assert seen.parts.evaluation == pytest.approx(300)  # with the metrics after its last forward pass
    assert seen.parts.steady == pytest.approx(990)


def test_an_evaluation_after_the_last_step_counts_too(tmp_path: Path) -> None:
    rows = steps(STEP, 100)
    ended = {"k": "exit", "t": rows["t"] + 500_000_000}
    seen = job(tmp_path, rows, trained(100), evaluations([100], 300 * MS), ended)
    assert seen.parts.evaluation == pytest.approx(300)
    assert seen.parts.after == pytest.approx(200)


def test_a_teacher_is_a_part_of_the_step(tmp_path: Path) -> None:
    seen = job(tmp_path, steps(STEP, 100), trained(100), evaluations(range(100), 4 * MS, loader=TRAINING))
    assert seen.parts.evaluation == seen.parts.inference == 0
    assert seen.parts.steady == pytest.approx(990)


def test_an_agent_that_acts_between_updates_is_no_evaluation(tmp_path: Path) -> None:
    acting = range(20, 100, 20)
    longer = {f"s{i}": 50 * MS for i in acting}
    seen = job(tmp_path, steps(walls(100, **longer), 100), evaluations(acting, 50 * MS, loader=-1))
    assert seen.parts.inference == pytest.approx(200)
    assert seen.parts.evaluation == 0


def test_windows_are_perfdoctors(tmp_path: Path) -> None:
    rows = steps(walls(100, s40=80 * MS, s41=80 * MS), 100, marked=[40, 41])
    seen = job(tmp_path, rows)
    assert seen.parts.observing == pytest.approx(160)
    assert seen.parts.steady == pytest.approx(990)


def test_time_between_rows_is_perfdoctors_as_far_as_it_was_timed(tmp_path: Path) -> None:
    first, second = steps(STEP, 50), steps(STEP, 50, first=50)
    second["t"] += 700_000_000  # 0.5 s of steps, and 0.2 s that are in no step
    seen = job(tmp_path, first, second, sample(100, own_us=20 * MS, window_us=150 * MS))
    assert seen.parts.observing == pytest.approx(170)
    assert seen.parts.between == pytest.approx(30)


def test_a_job_without_steps_has_no_anatomy(tmp_path: Path) -> None:
    recording = recorded(tmp_path, process())
    assert isinstance(anatomy.build(recording, steady.select(recording), RunFacts()), Missing)


def test_a_few_steps_are_enough(tmp_path: Path) -> None:
    seen = job(tmp_path, steps(walls(4, s0=90 * MS), 4))
    assert seen.parts.first_step == pytest.approx(100)
    assert seen.parts.steady == pytest.approx(30)


# ---------------------------------------------------------------------------------------------------------
# Evaluations


FIT, IN_FIT, RUN, LATER_IN_RUN = 5, 6, 7, 8
PLACES = (
    site(3, 60, function="score"),
    site(FIT, 40, function="fit"),
    site(IN_FIT, 47, function="fit"),
    site(RUN, 80, function="run"),
    site(LATER_IN_RUN, 84, function="run"),
)


@pytest.mark.parametrize(
    ("training", "evaluating", "line"),
    [
        ((FIT, RUN), (3, IN_FIT, RUN), 47),
        ((FIT, RUN), (3, LATER_IN_RUN), 84),
        ((FIT, RUN), (IN_FIT, RUN), 47),
        ((FIT, RUN), (3, RUN), 60),
        ((FIT,), (3,), 60),
        ((), (3, IN_FIT), 60),
    ],
    ids=["in the loop", "after the loop", "written out", "by one line for both", "by nobody", "without a loader"],
)
def test_who_asks_for_an_evaluation_is_the_line_beside_training(
    tmp_path: Path, training: tuple[int, ...], evaluating: tuple[int, ...], line: int
) -> None:
    rows = evaluations([30, 60], 80 * MS)
    began = [iterator(0, loader=TRAINING, site=training[0], callers=training[1:])] if training else []
    asked = iterator(30, loader=VALIDATION, site=evaluating[0], callers=evaluating[1:])
    loaders = [loader(TRAINING), loader(VALIDATION)]
    longer = steps(walls(90, s30=80 * MS, s60=80 * MS), 90)
    seen = evaluated(tmp_path, *PLACES, *loaders, *began, asked, trained(90), longer, rows)
    assert isinstance(seen, Evaluations) and isinstance(seen.asked_at, Site)
    assert seen.asked_at.line == line


def test_an_evaluation_is_told_by_what_it_is_made_of(tmp_path: Path) -> None:
    at = (20, 40, 60, 80)
    longer = {f"s{i}": 120 * MS for i in at}
    starts = [iterator(i, 30 * MS, VALIDATION) for i in at]
    made = loader(VALIDATION, num_workers=2), {"k": "batch", "loader": VALIDATION, "samples": 4}
    received = batches([i for i in at for _ in range(8)], 1 * MS, loader=VALIDATION)
    rows = steps(walls(100, **longer), 100, micro=[9 if i in at else 1 for i in range(100)])
    # The batch that a step trains with is the last that it takes.
    training = batches(range(100), 0, loader=TRAINING)
    for name in ("step", "wait_us", "loader"):
        one = [received[name]] * 32 if isinstance(received[name], int) else received[name]
        other = [training[name]] * 100 if isinstance(training[name], int) else training[name]
        received[name] = [*one, *other]
    order = sorted(range(132), key=lambda i: received["step"][i])
    both = {**received, "n": 132, **{n: [received[n][i] for i in order] for n in ("step", "wait_us", "loader")}}
    seen = evaluated(tmp_path, rows, *made, *starts, both, evaluations(at, 120 * MS))
    assert isinstance(seen, Evaluations)
    assert seen.count == 4
    assert seen.every_steps == 20
    assert seen.ms == pytest.approx(120)
    assert seen.forward_ms == pytest.approx(60)
    assert seen.start_ms == pytest.approx(30)
    assert seen.wait_ms == pytest.approx(8)
    assert (seen.samples, seen.num_workers, seen.batches) == (4, 2, 8)
    assert seen.share == pytest.approx(480 / 1480, rel=0.01)
    assert seen.training_ms == pytest.approx(200, rel=0.02)


def asked_without_a_loader(tmp_path: Path, *records: dict[str, Any], **more: int) -> UnloadedPasses | None:
    """100 passes after every 20th step of 10 ms, which take 50 ms."""
    seen = evaluations(range(20, 100, 20), 100 * MS, forwards=100, loader=-1, **more)
    recording = recorded(tmp_path, boundary("optimizer"), settings(), steps(STEP, 100), trained(100), seen, *records)
    return evaluation.unloaded(recording)


def test_many_passes_without_a_loader_are_told_with_their_samples(tmp_path: Path) -> None:
    line = site(3, 60, function="score"), {"k": "evaluated", "site": 3}
    seen = asked_without_a_loader(tmp_path, *line, evaluating=100, samples=200)
    assert seen is not None and (seen.passes, seen.samples, seen.every_steps) == (100, 2, 25)
    assert seen.ms == pytest.approx(50) and isinstance(seen.at, Site) and seen.at.line == 60


@pytest.mark.parametrize("more", [{"evaluating": 99, "samples": 100}, {}], ids=["an agent acts", "an older recording"])
def test_passes_that_are_not_in_evaluation_mode_are_none(tmp_path: Path, more: dict[str, int]) -> None:
    assert asked_without_a_loader(tmp_path, **more) is None


EVALUATING = site(3, 60, function="score"), {"k": "held_out", "site": 3}


def repeats(followed: int = 3, **fields: Any) -> dict[str, Any]:
    """What was seen of operators, a millisecond of which compute from each output of an evaluation."""
    return {
        "k": "window",
        "name": "repeats",
        "rows": [],
        "ops_ms": 9.0,
        "followed": followed,
        "scores_ms": 1.0,
        **fields,
    }


def in_every_step(tmp_path: Path, *records: dict[str, Any]) -> Evaluations | Missing:
    """Steps of 10 ms, 4 of which evaluate on a held-out tensor."""
    rows = evaluations(range(1, 100), 4 * MS, forwards=1, loader=-1, held_out=1)
    return evaluated(tmp_path, steps(STEP, 100), trained(100), rows, *EVALUATING, *records)


def test_an_evaluation_on_a_held_out_tensor_is_one_in_every_step_too(tmp_path: Path) -> None:
    seen = in_every_step(tmp_path, repeats())
    assert isinstance(seen, Evaluations)
    assert seen.held_out and seen.regular and seen.is_sure
    assert (seen.count, seen.every_steps, seen.samples, seen.num_workers) == (99, 1, 0, 0)
    assert seen.ms == pytest.approx(5) and seen.forward_ms == pytest.approx(2)
    assert seen.share == pytest.approx(0.5, rel=0.02)
    assert isinstance(seen.iterated_at, Site) and seen.iterated_at.function == "score"


@pytest.mark.parametrize(
    "records",
    [(), (repeats(followed=0, scores_ms=0.0),), (repeats(trained_on=True, scores_ms=0.0),)],
    ids=["no window", "none in the window", "trained on it"],
)
def test_what_training_needs_of_it_is_not_always_known(tmp_path: Path, records: tuple[dict[str, Any], ...]) -> None:
    seen = in_every_step(tmp_path, *records)
    assert isinstance(seen, Evaluations)
    assert not seen.is_sure and seen.ms == pytest.approx(4)


def test_what_training_uses_is_no_evaluation(tmp_path: Path) -> None:
    assert isinstance(in_every_step(tmp_path, repeats(scores_used=True)), Missing)


def test_of_two_kinds_of_evaluation_the_dearer_one_is_told(tmp_path: Path) -> None:
    rows = evaluations([50], 600 * MS)
    longer = {"s50": 600 * MS}
    few = evaluations(range(1, 100), 4 * MS, forwards=1, loader=-1, held_out=1)
    seen = evaluated(tmp_path, steps(walls(100, **longer), 100), trained(100), few, rows, *EVALUATING)
    assert isinstance(seen, Evaluations)
    assert not seen.held_out and seen.count == 1
    assert seen.share == pytest.approx(600 / 1590, rel=0.05)


def test_a_job_that_does_not_evaluate_between_steps_says_so(tmp_path: Path) -> None:
    seen = evaluated(tmp_path, steps(STEP, 100), trained(100), evaluations([100], 50 * MS))
    assert isinstance(seen, Missing)
    assert "evaluate" in seen.reason


def test_calls_of_a_models_parts_are_told_by_the_one_step_that_was_looked_at(tmp_path: Path) -> None:
    """1.6 s of them in a step that took 2 s as it was watched, and takes 1 s as such steps do."""
    walls = [
        STEP,
        *[100 * STEP if number in (20, 60) else 200 * STEP if number == 40 else STEP for number in range(1, 100)],
    ]
    parts = {"calls": 400, "us": 1_600 * MS, "rows": 800, "site": 3}
    told = [
        site(3, 60, function="score"),
        {"k": "long_steps", "step": 41, "at": 20, "length": 20},
        window("between", rows=[], equivalents=[], ops_ms=100.0, parts_called=parts),
    ]
    recording = recorded(tmp_path, boundary("optimizer"), settings(), steps(walls, marked=[40]), trained(100), *told)
    seen = evaluation.unloaded(recording)
    assert seen is not None and seen.of_parts
    assert (seen.passes, seen.samples, seen.every_steps) == (400, 2, 20)
    assert isinstance(seen.at, Site) and seen.at.line == 60
    assert seen.ms < 1_600
