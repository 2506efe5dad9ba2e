"""What Dynamo recorded, by the half of the steps in which it happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recordings import START_NS, WALL_US, recorded, selected, settings, site, steps

from perfdoctor.evidence import compilation
from perfdoctor.evidence.model import FORGOTTEN, Compilation, GraphBreak, Missing, Site
from perfdoctor.evidence.steady import measure, select

N = 101


def _at(step: int, us: int = 5_000, frame: str = "0", **fields: Any) -> dict[str, Any]:
    """Something compiled in a step."""
    return {"k": "compiled", "t": START_NS + 1000 * WALL_US * step + 1000, "us": us, "frame": frame, **fields}


def _built(directory: Path, *records: dict[str, Any]) -> Compilation:
    uses = settings(compiled=True, compiled_at=3)
    recording = recorded(directory, steps(WALL_US, N), site(3, 12), uses, *records)
    built = compilation.build(recording, selected(recording))
    assert isinstance(built, Compilation)
    return built


@pytest.mark.parametrize(("looked_at", "never"), [(0, True), (2, False), (None, False)])
def test_a_job_that_compiles_nothing_though_it_called_for_it_is_none_that_compiles(
    looked_at: int | None, never: bool, tmp_path: Path
) -> None:
    assert _built(tmp_path, {"k": "end", "tracked_objects": 9, "compiled": looked_at}).never_ran == never


def test_what_is_compiled_again_late_counts_to_its_function(tmp_path: Path) -> None:
    again = [_at(step, reason="size mismatch") for step in (60, 70, 80)]
    backwards = [_at(step, us=1_000) for step in (61, 71)]
    built = _built(tmp_path, site(1, 30), _at(0, us=900_000, site=1), *again, *backwards)
    (recompiled,) = built.recompiled
    assert recompiled.site == Site("train.py", 30, "main") and recompiled.count == 3
    assert recompiled.ms == pytest.approx(17.0) and recompiled.reasons == ("size mismatch",)
    assert (built.count, built.late_ms) == (6, pytest.approx(17.0))
    assert built.seconds == pytest.approx(0.917)
    assert built.late_wall_ms == pytest.approx(10.0 * built.late_steps)
    assert built.called_at == Site("train.py", 12, "main")


def test_a_function_that_is_compiled_as_if_for_the_first_time_was_forgotten(tmp_path: Path) -> None:
    anew = [_at(step, site=1) for step in range(0, N, 20)]
    rest = [_at(step, site=2, resumed=True) for step in range(0, N, 20)]
    (recompiled,) = _built(tmp_path, site(1, 30), site(2, 33), *anew, *rest).recompiled
    assert recompiled.site == Site("train.py", 30, "main") and recompiled.count == 3
    assert recompiled.reasons == (FORGOTTEN,)


def test_compiling_that_ends_early_is_no_recompiling(tmp_path: Path) -> None:
    built = _built(tmp_path, _at(0), *[_at(step, reason="size mismatch") for step in range(1, 40)])
    assert built.recompiled == () and built.late_ms == 0.0 and built.count == 40


def test_steps_that_compile_are_left_out_of_the_steady_step_if_they_are_few(tmp_path: Path) -> None:
    walls = [WALL_US + 90_000 * (step % 20 == 10) for step in range(N)]
    ends = [START_NS + 1000 * sum(walls[: step + 1]) for step in range(N)]
    few = [{"k": "compiled", "t": ends[step] - 1000, "us": 80_000} for step in range(10, N, 20)]
    recording = recorded(tmp_path, steps(walls), settings(compiled=True), *few)
    selection = select(recording)
    assert not isinstance(selection, Missing)
    step = measure(recording, selection)
    assert step.irregular == 5 and step.step_ms == pytest.approx(10.0)
    built = compilation.build(recording, selection)
    assert isinstance(built, Compilation) and built.irregular


def test_all_that_is_compiled_again_after_the_warm_up_is_counted_and_the_first_time_is_not(tmp_path: Path) -> None:
    first, other = _at(0, us=900_000, site=1), _at(20, us=300_000, frame="1")
    early = [_at(step, reason="size mismatch") for step in (20, 30)]
    late = [_at(step, reason="size mismatch") for step in (60, 70, 80)]
    again = _built(tmp_path, site(1, 30), first, other, *early, *late, _at(71, us=1_000)).again
    assert (again.count, again.whole_count, again.ms) == (5, 5, pytest.approx(26.0))
    assert again.steps == N - 1 and again.per_step_ms == pytest.approx(0.26)


def test_what_steps_that_compile_are_longer_by_is_more_than_dynamo_says(tmp_path: Path) -> None:
    walls = [WALL_US + 90_000 * (step % 3 == 0) for step in range(N)]
    ends = [START_NS + 1000 * sum(walls[: step + 1]) for step in range(N)]
    again = [
        {"k": "compiled", "t": ends[step] - 1000, "us": 80_000, "frame": "0", "reason": "size mismatch"}
        for step in range(0, N, 3)
    ]
    recording = recorded(tmp_path, steps(walls), settings(compiled=True), *again)
    built = compilation.build(recording, selected(recording))
    assert isinstance(built, Compilation)
    assert built.again.beyond_ms == pytest.approx(built.again.ms * 9 / 8)
    assert built.compiled_ms == pytest.approx(10.0)


def test_steps_before_the_first_compilation_ran_in_python(tmp_path: Path) -> None:
    walls = [30_000] * 40 + [500_000] + [WALL_US] * 60
    first = {"k": "compiled", "t": START_NS + 1000 * sum(walls[:40]) + 1000, "us": 400_000, "frame": "0"}
    recording = recorded(tmp_path, steps(walls), settings(compiled=True), first)
    built = compilation.build(recording, selected(recording))
    assert isinstance(built, Compilation)
    assert (built.eager_ms, built.compiled_ms) == (pytest.approx(30.0), pytest.approx(10.0))


@pytest.mark.parametrize(("before", "after", "known"), [(512, 512, True), (512, 0, True), (64, 512, False)])
def test_steps_on_batches_of_another_size_are_no_comparison(
    tmp_path: Path, before: int, after: int, known: bool
) -> None:
    sizes = settings(compiled=True, eager_elements=before, compiled_elements=after)
    built = _built(tmp_path, _at(20), sizes)
    assert isinstance(built.eager_ms, float) == known


def test_a_step_or_two_that_warmed_up_tell_nothing_of_python(tmp_path: Path) -> None:
    assert isinstance(_built(tmp_path, _at(6)).eager_ms, Missing)
    assert _built(tmp_path, _at(9)).eager_ms == pytest.approx(10.0)


def test_where_most_steps_compile_that_is_how_the_loop_works(tmp_path: Path) -> None:
    assert not _built(tmp_path, *[_at(step, reason="size mismatch") for step in range(N)]).irregular


def test_a_break_is_where_a_function_goes_on_and_why_the_one_before_ended(tmp_path: Path) -> None:
    pieces = (
        _at(0, site=1, broke="print"),
        _at(1, frame="1", site=2, resumed=True),
        _at(2, frame="2", site=4, resumed=True),
        _at(3, frame="1", site=2, resumed=True, reason="size mismatch"),
    )
    built = _built(tmp_path, site(1, 30), site(2, 33), site(4, 36), *pieces)
    assert built.breaks == (
        GraphBreak(Site("train.py", 33, "main"), "print"),
        GraphBreak(Site("train.py", 36, "main"), ""),
    )


def test_a_function_that_breaks_inside_a_loop_is_not_compiled_and_counts_as_a_break(tmp_path: Path) -> None:
    pieces = _at(0, site=1, failed="Unsupported Tensor.item() call"), _at(1, frame="1", site=2)
    built = _built(tmp_path, site(1, 30), site(2, 36), *pieces)
    assert built.breaks == (GraphBreak(Site("train.py", 30, "main"), "Unsupported Tensor.item() call"),)
    assert built.given_up == ()


def test_a_function_that_was_given_up_is_known_by_its_number(tmp_path: Path) -> None:
    last = _at(5, reason="size mismatch", failed="Dynamo recompile limit exceeded")
    (given_up,) = _built(tmp_path, site(1, 30), _at(0, site=1), last).given_up
    assert given_up.site == Site("train.py", 30, "main") and given_up.reasons == ("size mismatch",)


def test_what_a_trial_compiles_is_not_the_jobs(tmp_path: Path) -> None:
    assert _built(tmp_path, _at(0), _at(N + 5)).count == 1


def test_a_job_that_does_not_compile_has_none(tmp_path: Path) -> None:
    recording = recorded(tmp_path, steps(WALL_US, N), settings())
    assert isinstance(compilation.build(recording, selected(recording)), Missing)
