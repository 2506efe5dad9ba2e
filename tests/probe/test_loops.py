"""Every style of loop: the job does the same, and its steps are seen for what they are."""

from __future__ import annotations

import json

import numpy as np
import pytest

from perfdoctor.recording.base import Missing, Site
from perfdoctor.recording.lines import SitesWindow
from perfdoctor.recording.model import ProcessRecording
from perfdoctor.recording.operators import OpsWindow

PARTS = ("input_wait", "forward", "backward", "optimizer", "checkpoint", "gc")
pytestmark = pytest.mark.timeout(450)

STEPS = 30
STYLES = (
    "plain",
    "no_loader",
    "accumulate",
    "accumulate_many",
    "gan",
    "lbfgs",
    "by_hand",
    "by_hand_no_loader",
    "by_data",
    "accumulate_by_hand",
    "functional",
    "own_optimizer",
    "infer",
    "infer_eval_with_grad",
    "infer_no_loader",
    "infer_train_mode",
    "inference_after_training",
    "rollout_first",
    "validated",
    "held_out",
    "per_parameter",
    "raising_step",
    "skipped_steps",
    "loader_elsewhere",
    "trained_elsewhere",
    "fresh_iterators",
    "loaders",
    "own_mode",
    "mode_from_step_11",
    "own_profiler",
    "forks",
    "layers_one_by_one",
    "many_kinds",
)


@pytest.fixture
def seen(observe):
    return observe("loops.py", *STYLES)


def without_own_profiler_log(stderr: str) -> list[str]:
    """The lines that Kineto prints for the job's own profiler hold the time and the pid."""
    return [line for line in stderr.splitlines() if "profiler_st" not in line]


def test_every_job_prints_the_same_and_ends_the_same(seen):
    bare, probed = seen.bare.stdout.splitlines(), seen.probed.stdout.splitlines()
    assert [line for line in bare if "failed" in line] == []
    assert probed == bare
    assert seen.probed.code == seen.bare.code == 0


def test_nothing_is_added_to_stderr_and_nothing_lost(seen):
    assert without_own_profiler_log(seen.probed.stderr) == without_own_profiler_log(seen.bare.stderr)
    assert seen.probed.stderr.count("profiler_start") == seen.bare.stderr.count("profiler_start")


def test_no_hook_failed(seen):
    seen.healthy()


def test_no_mode_and_no_profiler_is_left_behind(seen):
    states = [json.loads(line.split(" ", 1)[1]) for line in seen.probed.stdout.splitlines() if line[:8] == "process "]
    assert len(states) == len(STYLES)
    assert {(state["modes"], state["profiler"]) for state in states} == {(0, False)}


def test_the_parts_of_a_step_never_exceed_it(seen):
    for process in seen.ranks:
        steps = process.steps
        parts = sum(steps[f"{name}_us"] for name in PARTS)
        assert (parts <= steps["wall_us"]).all(), seen.names[process.header.pid]
        assert all((column >= 0).all() for column in steps.arrays.values())


def _parameter_dtypes(process: ProcessRecording) -> tuple[tuple[str, int], ...]:
    assert process.settings is not None
    return process.settings.precision.parameter_dtypes


def test_parameters_are_known_also_where_a_rollout_comes_first(seen):
    assert _parameter_dtypes(seen.named("rollout_first")) == _parameter_dtypes(seen.named("plain")) != ()


@pytest.mark.parametrize(
    ("style", "boundary", "steps", "micro"),
    [
        ("plain", 0, STEPS, 1),
        ("no_loader", 0, STEPS, 1),
        ("accumulate", 0, STEPS, 3),
        ("gan", 0, STEPS, 5),
        ("lbfgs", 0, STEPS, 4),
        ("by_hand", 3, STEPS - 4, 1),
        ("by_hand_no_loader", 3, STEPS - 5, 1),
        ("infer", 1, STEPS - 3, 1),
        ("infer_eval_with_grad", 1, STEPS - 3, 1),
        ("infer_no_loader", 2, STEPS - 8, 1),
        ("infer_train_mode", 1, STEPS - 3, 1),
        ("per_parameter", 0, STEPS, 1),
        ("raising_step", 0, 20, 2),
        ("skipped_steps", 0, 24, 1),
        ("loader_elsewhere", 0, STEPS, 1),
        ("trained_elsewhere", 0, STEPS, 1),
        ("fresh_iterators", 0, STEPS, 1),
        ("loaders", 0, 70, 1),
        ("own_mode", 0, 20 + 4 * 14 + 6, 1),
        ("own_profiler", 0, STEPS, 1),
        ("forks", 0, STEPS, 1),
        ("many_kinds", 0, STEPS, 1),
    ],
)
def test_steps_end_where_they_should(seen, style, boundary, steps, micro):
    process = seen.named(style)
    assert process.role == "rank"
    assert len(process.steps) == steps
    assert set(process.steps["boundary"]) == {boundary}
    # Raised and skipped steps leave their micro-batches to the next one.
    assert np.bincount(process.steps["micro"][5:]).argmax() in (micro, 1)
    assert process.steps["micro"].max() >= micro


def test_every_step_of_an_accumulating_loop_has_all_its_micro_batches(seen):
    assert set(seen.named("accumulate").steps["micro"]) == {3}
    steps = seen.named("accumulate_many").steps
    assert set(steps["micro"][steps["boundary"] == 0][1:]) == {12}


@pytest.mark.parametrize(
    ("style", "micro", "evaluations"),
    [("by_data", 1, 2), ("accumulate_by_hand", 2, 0), ("functional", 1, 2), ("own_optimizer", 1, 2)],
)
def test_without_an_optimizer_object_evaluations_are_no_steps(seen, style, micro, evaluations):
    steps = seen.named(style).steps
    steps = steps.where(steps["boundary"] == 3)
    # The first updates tell what kind of loop it is; the last step ends where the next one would begin.
    assert STEPS - 5 <= len(steps) <= STEPS - 4
    assert sorted(steps["micro"][1:]) == [micro] * (len(steps) - 1 - evaluations) + [micro + 4] * evaluations


def test_the_update_by_hand_is_the_optimizers_part_where_nothing_else_can_be_in_it(seen):
    assert part_share(seen.named("own_optimizer"), "optimizer") > 0
    assert part_share(seen.named("by_data"), "optimizer") == 0


def part_share(process: ProcessRecording, part: str) -> float:
    steps = process.steps
    return float(steps[f"{part}_us"].sum() / steps["wall_us"].sum())


def test_a_step_that_raised_does_not_swallow_the_time_after_it(seen):
    # Each exception is followed by a loop of Python code that is longer than all of torch's part.
    assert part_share(seen.named("raising_step"), "optimizer") < 0.3


def test_optimizers_in_the_backward_pass_are_told_from_it(seen):
    process = seen.named("per_parameter")
    assert part_share(process, "optimizer") > 0
    assert part_share(process, "backward") > part_share(process, "input_wait") / 10


def test_forwards_without_no_grad_are_counted_in_evaluation_only(seen):
    assert sum(u.count for u in seen.named("infer_eval_with_grad").eval_with_grad) in (STEPS - 1, STEPS)
    assert sum(u.count for u in seen.named("validated").eval_with_grad) in (11, 12)
    for style in ("plain", "infer", "infer_train_mode", "infer_no_loader", "gan", "lbfgs"):
        assert seen.named(style).eval_with_grad == (), style


def test_windows_see_a_plain_loop(seen):
    process = seen.named("plain")
    assert isinstance(process.ops, OpsWindow) and process.ops.profile.ops_per_step > 50
    assert isinstance(process.call_sites, SitesWindow) and process.call_sites.ops > 50 * process.call_sites.steps
    assert 4 <= process.steps["marked"].sum() <= 6


def test_nothing_is_kept_and_no_window_opened_that_was_not_asked_for(seen):
    process = seen.named("plain")
    assert isinstance(process.ops.trace, Missing) and list(seen.run.glob("trace-*")) == []
    assert process.memory is None and process.objects is None


@pytest.mark.parametrize(
    ("style", "window", "reason"),
    [
        ("own_mode", "call_sites", "dispatch mode of its own"),
        ("own_profiler", "ops", "profiler of its own"),
        ("forks", "ops", "starts processes"),
        ("forks", "call_sites", "starts processes"),
        ("trained_elsewhere", "ops", "another thread"),
    ],
)
def test_a_window_that_cannot_be_says_why(seen, style, window, reason):
    found = getattr(seen.named(style), window)
    assert isinstance(found, Missing)
    assert reason in found.reason


def test_a_profiler_of_the_jobs_own_is_noted_from_step_to_step(seen):
    recording = seen.named("own_profiler")
    switched = recording.profiler
    assert [one.on for one in switched] == [True, False] * (len(switched) // 2)
    assert [one.step for one in switched[:2]] == [16, 19]
    assert switched[0].site.function == "own_profiler" and switched[0].options == () and not switched[0].ends
    stepped = [call for call in recording.calls if call.kind == "profiler.step"]
    assert sum(call.count for call in stepped) == STEPS and all(call.us > 0 for call in stepped)
    assert {call.site.function for call in stepped} == {"own_profiler"}


def test_layers_called_one_by_one_are_let_go(seen):
    steps = seen.named("layers_one_by_one").steps
    assert steps["micro"][3] == 40
    assert steps["micro"][-1] < 40


def test_what_a_loader_is_made_of_is_recorded(seen):
    loaders = seen.named("loaders").loaders
    assert [loader.batch_size for loader in loaders[:3]] == [4, 4, 4]
    assert {loader.num_workers for loader in loaders} == {0}
    assert loaders[0].collate == "collate"
    assert loaders[2].pin_memory
    process = seen.named("plain")
    assert isinstance(process.loaders[0].site, Site) and process.loaders[0].site.file == "loops.py"
    assert process.batches_seen[0].samples == 4
    assert len(seen.named("fresh_iterators").iterators) == STEPS


def test_evaluations_on_a_tensor_in_memory_are_told_with_their_line(seen):
    process = seen.named("held_out")
    found = process.evaluations
    known = found.where(found["held_out"] == 1)
    # The first two are not known to be any, nor is the last, after which the job ends.
    assert len(known) >= STEPS - 3 and set(known["loader"].tolist()) == {-1} and set(known["forwards"].tolist()) == {1}
    (line,) = process.held_out
    assert line.site.file == "loops.py" and line.site.function == "held_out"
    assert not seen.named("rollout_first").held_out and not seen.named("validated").held_out


def test_evaluations_between_steps_are_told_with_their_loader(seen):
    process = seen.named("validated")
    found = process.evaluations
    assert found["step"].tolist() == [10, 20, 30]
    assert len(set(found["loader"].tolist())) == 1 and (found["us"] > found["forward_us"]).all()
    assert not set(found["loader"].tolist()) & set(process.batches["loader"][process.batches["step"] == 5].tolist())
