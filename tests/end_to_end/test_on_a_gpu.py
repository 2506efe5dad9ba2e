"""Real jobs on an NVIDIA GPU. Not run on one yet: no machine that this was developed on has any."""

from __future__ import annotations

import pytest
from running import JOBS, Perfdoctor

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.e2e,
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
