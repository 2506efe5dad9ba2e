"""Real jobs on an NVIDIA GPU. Not run on one yet: no machine that this was developed on has any."""

from __future__ import annotations

from typing import Any

import pytest
from running import JOBS, Checked, Perfdoctor

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]

GPU = JOBS / "gpu.py"


def _line(text: str) -> int:
    (line,) = [n for n, source in enumerate(GPU.read_text().splitlines(), 1) if text in source]
    return line


def test_a_healthy_job_is_seen_on_its_device(perfdoctor: Perfdoctor) -> None:
    checked = perfdoctor.check("--steps", "60", GPU, "healthy")
    assert checked.json["integrity"]["probe_faults"] == []
    assert checked.check("PD01")["outcome"] == "clear", checked.stdout
    assert "cuda" in checked.check("PD01")["reason"]
    errors = [name for name, finding in checked.findings.items() if finding["severity"] == "error"]
    assert errors == [], checked.stdout


@pytest.mark.parametrize(
    ("illness", "finding", "text"),
    [
        ("model-on-cpu", "PD01.model-on-cpu", None),
        ("cudnn-off", "PD02.cudnn-disabled", None),
        ("small-batch", "PD05.batch-too-small", "DataLoader(data"),
        ("float64", "PD07.float64", None),
        ("empty-cache", "PD08.empty-cache", "torch.cuda.empty_cache()"),
        ("scalar-reads", "PD10.device-sync", "images.mean().item()"),
    ],
)
def test_an_ill_job(perfdoctor: Perfdoctor, illness: str, finding: str, text: str | None) -> None:
    checked = perfdoctor.check("--steps", "60", GPU, illness)
    assert finding in checked.findings, checked.stdout
    assert checked.json["integrity"]["probe_faults"] == []
    if text is not None:
        assert checked.findings[finding]["location"]["line"] == _line(text)


def _device(checked: Checked) -> dict[str, Any]:
    device: dict[str, Any] = checked.json["anatomy"]["device"]
    assert "missing" not in device, device
    return device


def test_the_devices_timeline_is_recorded_and_adds_up_to_the_step(perfdoctor: Perfdoctor) -> None:
    checked = perfdoctor.check("--steps", "150", GPU, "healthy")
    assert checked.json["integrity"]["probe_faults"] == []
    device = _device(checked)
    assert device["steps"] >= 10
    assert device["total_ms"] == pytest.approx(checked.json["anatomy"]["step_ms"], rel=0.15)
    assert device["parts"]["backward"] > device["parts"]["optimizer"] >= 0
    assert 0 <= device["idle_most_ms"] <= 1.05 * device["total_ms"]
    assert device["ahead_low_ms"] <= device["ahead_high_ms"]
    assert "on the device" in checked.stdout


@pytest.mark.parametrize("bound", ["device", "host"])
def test_host_bound_and_device_bound_loops_are_told_apart(perfdoctor: Perfdoctor, bound: str) -> None:
    checked = perfdoctor.check("--steps", "150", GPU, f"{bound}-bound")
    assert _device(checked)["bound"] == bound, checked.stdout
    assert f"bound by the {bound}" in checked.json["verdict"]


def test_graph_capture_in_the_job_goes_on_undisturbed(perfdoctor: Perfdoctor) -> None:
    checked = perfdoctor.check("--steps", "150", GPU, "captured")
    assert checked.json["integrity"]["probe_faults"] == []
    assert checked.json["integrity"]["job_end"]["kind"] == "stopped", checked.stdout


def test_remedies_for_a_gpu_are_tried_on_the_running_job(perfdoctor: Perfdoctor) -> None:
    names = ("memory.empty-cache", "dtype.tf32", "cudnn.benchmark", "reads.deferred")
    options = ("--trial", "--trial-seconds", "60", "--steps", "60", "--try", ",".join(names))
    checked = perfdoctor.check(*options, GPU, "empty-cache")
    trials = {trial["remedy"]: trial for trial in checked.json["trials"]["single"]}
    assert trials["memory.empty-cache"]["verdict"] == "helped", trials
    assert set(names) <= trials.keys()
    assert checked.json["integrity"]["probe_faults"] == []
