"""Layers and lines: from what the windows saw to an ordinary step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recordings import recorded

from perfdoctor.evidence.layers import hot_lines, layers
from perfdoctor.evidence.model import LayerProfile, Missing, Parts, Step
from perfdoctor.evidence.places import Places

NO_STEP = Missing("too few steps")
STEP = Step(
    *("optimizer", 50, 1.0, 5, 4, 0, 0.0, 20.0, Parts(input_wait=2.0, forward=6.0, backward=8.0, other=4.0)),
    *(20.0, 0.1, 19.0, 21.0, 18.0, 18.0, 0.0, 1.0, 32.0, 1.0),
)
LAYER = {"name": "fc", "kind": "Linear", "order": 1, "calls": 4, "forward_us": 2000, "backward_us": 6000, "flops": 800}
REST = {"name": "", "kind": "Net", "order": 0, "leaf": False, "calls": 4, "forward_us": 500, "backward_us": 0}
SITES = (
    {"k": "site", "id": 1, "file": "/job/train.py", "line": 5, "function": "main"},
    {"k": "site", "id": 2, "file": "/job/train.py", "line": 6, "function": "main", "via": "/torch/_tensor.py:backward"},
)


def window(name: str, **fields: Any) -> dict[str, Any]:
    return {"k": "window", "name": name, "first": 10, "step": 12, "steps": 2, **fields}


def profile(tmp_path: Path, step: Step | Missing = STEP, **seen: Any) -> LayerProfile | Missing:
    record = window("ops", layers={"total_us": 16_000, "flops": 1000, "count": 2, "modules": [LAYER, REST], **seen})
    return layers(recorded(tmp_path, record), step)


def test_a_layer_is_told_per_step(tmp_path: Path) -> None:
    found = profile(tmp_path)
    assert isinstance(found, LayerProfile)
    first = found.layers[0]
    assert (first.name, first.calls_per_step, first.forward_ms, first.backward_ms) == ("fc", 2.0, 1.0, 3.0)
    assert (first.time_share, first.flop_share, first.flops_per_step) == (0.5, 0.8, 400.0)
    assert found.total_ms == 8.0


def test_profiled_time_never_exceeds_an_ordinary_step(tmp_path: Path) -> None:
    found = profile(tmp_path, total_us=72_000)
    assert isinstance(found, LayerProfile)
    assert found.total_ms == pytest.approx(18.0)
    assert found.layers[0].ms == pytest.approx(4.0 / 2)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (None, "not reached"),
        (window("ops", missing="the job runs a profiler of its own"), "profiler of its own"),
        (window("ops"), "older"),
        (window("ops", layers={"missing": "the job uses torch.compile"}), "torch.compile"),
        (window("ops", layers={"modules": [LAYER]}, device={"kernels": 5}), "matched"),
    ],
)
def test_layers_that_were_not_seen_say_why(tmp_path: Path, record: dict[str, Any] | None, reason: str) -> None:
    found = layers(recorded(tmp_path, *([record] if record else [])), STEP)
    assert isinstance(found, Missing)
    assert reason in found.reason


def test_a_job_without_modules_has_an_empty_profile(tmp_path: Path) -> None:
    found = profile(tmp_path, total_us=0, flops=0, count=0, modules=[])
    assert isinstance(found, LayerProfile)
    assert found.layers == ()


LINES = window(
    "sites",
    ops=100,
    lines=[
        {"site": 1, "part": "forward", "ops": 60, "us": 100, "python_us": 200, "calls": 40, "places": 2},
        {"site": 2, "part": "backward", "ops": 40, "us": 900, "python_us": 100, "calls": 0, "places": 1},
        {"site": 99, "part": "other", "ops": 1, "us": 900, "python_us": 0, "calls": 1, "places": 1},
    ],
    lines_us={"forward": 400, "backward": 1000, "other": 900},
    lines_ops={"forward": 80, "backward": 40, "other": 1},
)


def test_a_line_costs_its_share_of_its_part_of_an_ordinary_step(tmp_path: Path) -> None:
    found = hot_lines(recorded(tmp_path, *SITES, LINES), Places(recorded(tmp_path, *SITES, pid=2).sites, "/job"), STEP)
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
        (window("sites", missing="a mode"), STEP, "a mode"),
        (window("sites", calls=[]), STEP, "older"),
        (LINES, NO_STEP, "too few"),
    ],
)
def test_lines_that_were_not_seen_say_why(
    tmp_path: Path, record: dict[str, Any] | None, step: Step | Missing, reason: str
) -> None:
    found = hot_lines(recorded(tmp_path, *([record] if record else [])), Places({}, "/job"), step)
    assert isinstance(found, Missing)
    assert reason in found.reason


def test_the_backward_pass_of_a_model_that_stands_aside_is_told_apart(tmp_path: Path) -> None:
    found = profile(tmp_path, modules=[LAYER, {**REST, "name": "teacher", "aside": True, "backward_us": 1000}])
    assert isinstance(found, LayerProfile)
    assert [layer.aside for layer in found.layers] == [False, True]
    assert found.aside_backward_ms == pytest.approx(0.5)


def test_a_model_that_no_optimizer_updates_is_told_with_the_line_that_calls_it(tmp_path: Path) -> None:
    teacher = {**REST, "name": "", "idle": True, "backward_us": 4000, "site": 1}
    record = window("ops", layers={"total_us": 16_000, "modules": [LAYER, teacher]})
    process = recorded(tmp_path, *SITES, record)
    found = layers(process, STEP, Places(process.sites, "/job"))
    assert isinstance(found, LayerProfile)
    (idle,) = found.idle
    assert idle.called_at is not None
    assert (idle.called_at.file, idle.called_at.line) == ("train.py", 5)
    assert idle.backward_ms == 2.0
    assert [layer.called_at for layer in found.layers if not layer.idle] == [None]
