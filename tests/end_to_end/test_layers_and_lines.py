"""Jobs with a layer or a line that costs too much, found with its name and place; and the same jobs cured.

What a machine that others use does to the figures must not matter, so only names, places and outcomes are asked.
"""

from __future__ import annotations

import pytest
from running import JOBS, Perfdoctor

pytestmark = pytest.mark.slow

JOB = JOBS / "layered.py"


def _line(text: str) -> int:
    (line,) = [number for number, line in enumerate(JOB.read_text().splitlines(), 1) if text in line]
    return line


@pytest.mark.parametrize(
    ("name", "finding", "text"),
    [
        ("loop", "PD10.element-loop", "for i in range(len(output))"),
        ("reads", "PD17.parameter-reads", "p.grad.norm().item()"),
        ("asserts", "PD16.tested-tensors", "isfinite(p.grad)"),
        ("profiled", "PD16.profiler-left-on", "with torch.profiler.profile("),
        ("average", "PD17.parameter-loop", "average.mul_(0.999)"),
        ("layer", "PD09.oversized-layer", ""),
        ("embedding", "PD09.dense-embedding-gradient", ""),
    ],
)
def test_an_ill_job(perfdoctor: Perfdoctor, name: str, finding: str, text: str) -> None:
    checked = perfdoctor.check("--steps", "40", "--fail-on", "never", JOB, name)
    assert checked.code == 0, checked.stderr
    assert finding in checked.findings, checked.stdout
    found = checked.findings[finding]
    saved = found["savings"]
    assert saved["ceiling_ms"] >= saved["high_ms"] >= saved["low_ms"] > 0
    if text:
        assert found["location"]["file"].endswith(JOB.name)
        assert found["location"]["line"] == _line(text)


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("loop", "PD10"),
        ("reads", "PD17"),
        ("asserts", "PD16"),
        ("profiled", "PD16"),
        ("average", "PD17"),
        ("layer", "PD09"),
        ("embedding", "PD09"),
    ],
)
def test_the_same_job_cured(perfdoctor: Perfdoctor, name: str, check: str) -> None:
    checked = perfdoctor.check("--steps", "40", JOB, name, "cured")
    outcome = checked.check(check)
    assert outcome["outcome"] == "clear", checked.stdout
    assert outcome["measurements"]
