"""Layers and lines: from what the windows saw to an ordinary step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recordings import no_window, ops_window, recorded, sites_window, torch

from perfdoctor.evidence.lines import hot_lines
from perfdoctor.evidence.model import LayerProfile, Missing, Parts, Step, UnusedGradients
from perfdoctor.evidence.windows import discarded, layers

NO_STEP = Missing("too few steps")
STEP = Step(
    *("optimizer", 50, 1.0, 5, 4, 0, 0.0, 0.0, 20.0, Parts(input_wait=2.0, forward=6.0, backward=8.0, other=4.0)),
    *(20.0, 0.1, 19.0, 21.0, 18.0, 18.0, 0.0, 1.0, 32.0, 1.0),
)
LAYER = {
    "name": "fc",
    "kind": "Linear",
    "order": 1,
    "leaf": True,
    "calls_per_step": 2.0,
    "forward_ms": 1.0,
    "backward_ms": 3.0,
    "time_share": 0.5,
    "flops_per_step": 400.0,
    "flop_share": 0.8,
    "parameters": 6,
    "parameter_bytes": 24,
}
REST = {**LAYER, "name": "", "kind": "Net", "order": 0, "leaf": False, "forward_ms": 0.25, "backward_ms": 0.0}
SITES = (
    torch(cwd="/job"),
    {"k": "site", "id": 1, "file": "/job/train.py", "line": 5, "function": "main"},
    {"k": "site", "id": 2, "file": "/job/train.py", "line": 6, "function": "main", "via": "/torch/_tensor.py:backward"},
)


def window(*rows: dict[str, Any], **seen: Any) -> dict[str, Any]:
    return ops_window(layers={"layers": list(rows), "count": 2, "total_ms": 8.0, "flops_per_step": 500.0, **seen})


def profile(tmp_path: Path, *rows: dict[str, Any], **seen: Any) -> LayerProfile | Missing:
    return layers(recorded(tmp_path, *SITES, window(*(rows or (LAYER, REST)), **seen)), STEP)


def test_a_layer_is_told_per_step(tmp_path: Path) -> None:
    found = profile(tmp_path)
    assert isinstance(found, LayerProfile)
    first = found.layers[0]
    assert (first.name, first.calls_per_step, first.forward_ms, first.backward_ms) == ("fc", 2.0, 1.0, 3.0)
    assert (first.time_share, first.flop_share, first.flops_per_step) == (0.5, 0.8, 400.0)
    assert found.total_ms == 8.0


def test_profiled_time_never_exceeds_an_ordinary_step(tmp_path: Path) -> None:
    found = profile(tmp_path, total_ms=36.0, stray_ms=2.0)
    assert isinstance(found, LayerProfile)
    assert found.total_ms == pytest.approx(18.0)
    assert found.layers[0].ms == pytest.approx(4.0 / 2)
    assert found.stray_ms == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (None, "not reached"),
        (no_window("ops", "the job runs a profiler of its own"), "profiler of its own"),
        (ops_window(layers={"missing": "the job uses torch.compile"}), "torch.compile"),
    ],
)
def test_layers_that_were_not_seen_say_why(tmp_path: Path, record: dict[str, Any] | None, reason: str) -> None:
    found = layers(recorded(tmp_path, *([record] if record else [])), STEP)
    assert isinstance(found, Missing)
    assert reason in found.reason


def test_a_job_without_modules_has_an_empty_profile(tmp_path: Path) -> None:
    nothing = {"layers": [], "count": 0, "total_ms": 0.0, "flops_per_step": 0.0}
    found = layers(recorded(tmp_path, ops_window(layers=nothing)), STEP)
    assert isinstance(found, LayerProfile)
    assert found.layers == ()


LINES = sites_window(
    lines=[
        {
            "site": 1,
            "part": "forward",
            "ops_per_step": 30.0,
            "ms_per_step": 0.15,
            "ops_ms": 0.05,
            "share": 0.75,
            "ops_share": 0.75,
            "runs_per_step": 10.0,
            "passes_per_update": 0.0,
        },
        {
            "site": 2,
            "part": "backward",
            "ops_per_step": 20.0,
            "ms_per_step": 0.5,
            "ops_ms": 0.45,
            "share": 1.0,
            "ops_share": 1.0,
            "runs_per_step": 0.0,
            "passes_per_update": 1.0,
        },
    ]
)


def test_a_line_costs_its_share_of_its_part_of_an_ordinary_step(tmp_path: Path) -> None:
    found = hot_lines(recorded(tmp_path, *SITES, LINES), STEP)
    assert not isinstance(found, Missing)
    backward, forward = found
    assert (backward.site.line, backward.part, backward.ms_per_step) == (6, "backward", 8.0)
    assert (forward.site.file, forward.share, forward.ms_per_step) == ("train.py", 0.75, pytest.approx(4.5))
    assert (forward.ops_per_step, forward.ops_share, forward.runs_per_step) == (30.0, 0.75, 10.0)
    assert forward.ops_ms == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("record", "step", "reason"),
    [
        (None, STEP, "not reached"),
        (no_window("sites", "a mode"), STEP, "a mode"),
        (LINES, NO_STEP, "too few"),
    ],
)
def test_lines_that_were_not_seen_say_why(
    tmp_path: Path, record: dict[str, Any] | None, step: Step | Missing, reason: str
) -> None:
    found = hot_lines(recorded(tmp_path, *SITES, *([record] if record else [])), step)
    assert isinstance(found, Missing)
    assert reason in found.reason


def test_the_backward_pass_of_a_model_that_stands_aside_is_told_apart(tmp_path: Path) -> None:
    found = profile(tmp_path, LAYER, {**REST, "name": "teacher", "aside": True, "backward_ms": 0.5})
    assert isinstance(found, LayerProfile)
    assert [layer.aside for layer in found.layers] == [False, True]
    assert found.aside_backward_ms == pytest.approx(0.5)


def test_a_model_that_no_optimizer_updates_is_told_with_the_line_that_calls_it(tmp_path: Path) -> None:
    found = profile(tmp_path, LAYER, {**REST, "idle": True, "backward_ms": 2.0, "called_at": 1})
    assert isinstance(found, LayerProfile)
    (idle,) = found.idle
    assert idle.called_at is not None
    assert (idle.called_at.file, idle.called_at.line) == ("train.py", 5)
    assert idle.backward_ms == 2.0
    assert [layer.called_at for layer in found.layers if not layer.idle] == [None]


# ---------------------------------------------------------------------------------------------------------
# Gradients without an optimizer

UNUSED = {
    "parameters": 4,
    "of": 6,
    "elements": 100,
    "modules": ["backbone"],
    "made_at": 1,
    "called_at": 2,
    "ahead_forward_ms": 2.0,
    "ahead_backward_ms": 4.0,
    "behind_backward_ms": 0.0,
}


def unused(tmp_path: Path, *records: dict[str, Any]) -> UnusedGradients | Missing:
    found = layers(recorded(tmp_path, *SITES, window(LAYER, unused=UNUSED, total_ms=36.0), *records), STEP)
    assert isinstance(found, LayerProfile)
    return found.unused


def test_gradients_that_nobody_read_are_told_as_in_an_ordinary_step(tmp_path: Path) -> None:
    found = unused(tmp_path, {"k": "window", "name": "gradients", "reads_per_step": 0.0, "updated": False})
    assert isinstance(found, UnusedGradients)
    assert (found.parameters, found.modules, found.made_at and found.made_at.line) == (4, ("backbone",), 5)
    assert (found.ahead_forward_ms, found.ahead_backward_ms) == (1.0, 2.0), "profiled, 36 ms were 18"


def test_gradients_that_only_a_norm_has_read_are_told(tmp_path: Path) -> None:
    found = unused(tmp_path, {"k": "window", "name": "gradients", "reads_per_step": 0.0, "updated": False})
    normed = unused(tmp_path, _watched(norms_per_step=4.0))
    assert isinstance(found, UnusedGradients) and isinstance(normed, UnusedGradients)
    assert (found.in_norm, normed.in_norm) == (False, True)


@pytest.mark.parametrize(
    ("records", "why"),
    [
        ((), "was not seen"),
        ((no_window("gradients", "the job compiles"),), "was not seen"),
        (({"k": "window", "name": "gradients", "reads_per_step": 4.0, "updated": False, "read_at": 2},), "train.py:6"),
        (({"k": "window", "name": "gradients", "reads_per_step": 0.0, "updated": True},), "without an optimizer"),
    ],
)
def test_gradients_that_are_used_or_were_not_watched_are_not_told(tmp_path: Path, records: Any, why: str) -> None:
    found = unused(tmp_path, *records)
    assert isinstance(found, Missing) and why in found.reason


# ---------------------------------------------------------------------------------------------------------
# Gradients that are zeroed unread

PASS = {"at": 1, "module": "Generator", "parameters": 4, "elements": 100, "passes_per_step": 1.0, "called_at": 2}


def _watched(**fields: Any) -> dict[str, Any]:
    return {"k": "window", "name": "gradients", "reads_per_step": 0.0, "updated": False, **fields}


def thrown_away(tmp_path: Path, *records: dict[str, Any]) -> Any:
    return discarded(recorded(tmp_path, *SITES, window(LAYER), *records), STEP)


def test_gradients_that_are_zeroed_unread_are_told_as_in_an_ordinary_step(tmp_path: Path) -> None:
    room_ms = STEP.parts.backward
    rows = [{**PASS, "whole_ms": 0.0, "part_ms": 1.0}, {**PASS, "whole_ms": 2.0, "part_ms": 0.0}]
    first, second = thrown_away(tmp_path, _watched(discarded=rows, passes_ms=2 * room_ms))
    assert (first.whole_ms, second.part_ms) == (1.0, 0.5), "watched, the passes took twice as long"
    assert first.at.line == 5 and first.called_at.line == 6


def test_where_no_pass_was_suspected_there_are_none_and_unseen_is_missing(tmp_path: Path) -> None:
    assert thrown_away(tmp_path) == ()
    assert isinstance(thrown_away(tmp_path, no_window("gradients", "the job compiles")), Missing)
