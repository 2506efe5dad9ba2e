"""Libraries switched off, vector extensions limited, CPUs taken by others: found with a timing and a name.

The machine may be anybody's, so only names, places and outcomes are asked.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from running import JOBS, Checked, Perfdoctor, Said

ILL = JOBS / "ill.py"
LIMIT = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"}
BY_ENVIRONMENT = "PD11.capped-by-environment"
BY_NEIGHBOUR = "PD12.cpu-contention"
BY_HYPERVISOR = "PD12.steal"
UNMUTED = {"PERFDOCTOR_CHECK_IGNORE": ""}


@contextmanager
def _neighbours(count: int) -> Iterator[list[int]]:
    """Strangers to perfdoctor: children of ours in sessions of their own. Their pids."""
    command = [sys.executable, str(JOBS / "neighbour.py")]
    started = [subprocess.Popen(command, start_new_session=True) for _ in range(count)]
    try:
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()


def line_of(text: str) -> int:
    """Of `text` in ill.py, which must hold it once."""
    (line,) = [number for number, line in enumerate(ILL.read_text().splitlines(), 1) if text in line]
    return line


def _texts(checked: Checked, finding: str) -> str:
    return json.dumps(checked.findings[finding])


# ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_onednn_switched_off_by_the_flags_trap_is_found(perfdoctor: Perfdoctor) -> None:
    checked = perfdoctor.check("--steps", "20", ILL, "onednn")
    assert "PD02.onednn-disabled" in checked.findings, checked.stdout
    found = checked.findings["PD02.onednn-disabled"]
    assert found["confidence"] == "high"  # the timing was measured
    assert "enabled=True" in found["fix"]["code"]
    assert found["location"]["line"] == line_of("flags(enabled=cured, deterministic=True)")
    assert "PD01.onednn-off" not in checked.findings


@pytest.mark.slow
def test_onednn_switched_off_in_the_whole_process_is_the_backends(perfdoctor: Perfdoctor) -> None:
    checked = perfdoctor.check("--steps", "20", ILL, "onednn_everywhere")
    assert "PD01.onednn-off" in checked.findings, checked.stdout
    assert "PD02.onednn-disabled" not in checked.findings


@pytest.mark.slow
def test_a_recurrent_layer_without_onednn_is_found(perfdoctor: Perfdoctor) -> None:
    checked = perfdoctor.check("--steps", "20", ILL, "recurrent")
    assert "PD02.onednn-disabled" in checked.findings, checked.stdout
    assert checked.findings["PD02.onednn-disabled"]["location"]["line"] == line_of("flags(enabled=cured):")
    cured = perfdoctor.check("--steps", "20", ILL, "recurrent", "cured").check("PD02")
    assert cured["outcome"] == "clear", cured
    assert "oneDNN" in json.dumps(cured)


@pytest.mark.slow
def test_attention_by_hand_is_found_with_its_line(perfdoctor: Perfdoctor) -> None:
    checked = perfdoctor.check("--steps", "20", ILL, "attention")
    assert "PD02.attention-by-hand" in checked.findings, checked.stdout
    found = checked.findings["PD02.attention-by-hand"]
    assert found["location"]["line"] == line_of(".softmax(-1) @ v")
    assert found["savings"]["low_ms"] > 0
    cured = perfdoctor.check("--steps", "20", ILL, "attention", "cured").check("PD02")
    assert cured["outcome"] == "clear", cured
    assert "fused" in json.dumps(cured)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "outcome"), [("short_attention", "clear"), ("classes", "not-applicable")])
def test_where_the_fused_kernel_saves_nothing_attention_is_not_blamed(
    perfdoctor: Perfdoctor, name: str, outcome: str
) -> None:
    assert perfdoctor.check("--steps", "20", ILL, name).check("PD02")["outcome"] == outcome


@pytest.mark.slow
def test_the_same_job_with_onednn_left_on_is_clear(perfdoctor: Perfdoctor) -> None:
    checked = perfdoctor.check("--steps", "20", ILL, "onednn", "cured")
    # Another layout of its images may be faster: that is an opportunity.
    assert {one["id"] for one in checked.check("PD02")["findings"]} <= {"PD02.channels-last"}, checked.stdout
    backend = checked.check("PD01")
    assert backend["findings"] == []
    # A GPU in the test machine that this small job does not use is no finding either.
    assert backend["outcome"] in ("clear", "not-applicable")
    assert "cpu" in backend["reason"].lower()


@pytest.fixture
def limited(perfdoctor: Perfdoctor) -> Checked:
    """A job whose environment holds torch and oneDNN back from the CPU's vector extensions."""
    return perfdoctor.check_once("--steps", "20", ILL, "vector_extensions", env=LIMIT)


@pytest.mark.slow
def test_a_capped_instruction_set_is_found_with_its_timing(limited: Checked) -> None:
    assert BY_ENVIRONMENT in limited.findings, limited.stdout
    found = limited.findings[BY_ENVIRONMENT]
    assert found["savings"]["low_ms"] > 0
    assert "ATEN_CPU_CAPABILITY" in found["fix"]["code"]
    timings = json.loads((limited.run / "timings.json").read_text())
    assert dict(timings["variables"]) == LIMIT
    assert any(op["limited_milliseconds"] > op["full_milliseconds"] for op in timings["timings"])


@pytest.mark.slow
def test_timings_are_part_of_the_recording(said: Said, tmp_path: Path, limited: Checked) -> None:
    again = said("report", limited.run, "--output", f"json:{tmp_path / 'again.json'}")
    assert again.code in (0, 1), again.stderr  # 1: there are findings
    report = json.loads((tmp_path / "again.json").read_text())
    assert BY_ENVIRONMENT in [finding["id"] for check in report["checks"] for finding in check["findings"]]


@pytest.mark.slow
def test_a_neighbour_on_every_cpu_is_named(perfdoctor: Perfdoctor) -> None:
    with _neighbours(len(os.sched_getaffinity(0))) as pids:
        checked = perfdoctor.check("--seconds", "6", "--steps", "100000", ILL, "vector_extensions", env=UNMUTED)
    assert BY_NEIGHBOUR in checked.findings, checked.stdout
    text = _texts(checked, BY_NEIGHBOUR)
    assert any(f"neighbour.py ({len(pids)} processes, the busiest pid {pid}, user " in text for pid in pids)


@pytest.fixture
def alone(perfdoctor: Perfdoctor) -> Checked:
    """The job by itself: with nothing in its environment, and no neighbour of ours."""
    return perfdoctor.check_once("--seconds", "4", "--steps", "100000", ILL, "vector_extensions", env=UNMUTED)


@pytest.mark.slow
def test_without_a_cap_nothing_is_timed(alone: Checked) -> None:
    assert alone.check("PD11")["outcome"] == "clear", alone.stdout
    assert not (alone.run / "timings.json").exists()


@pytest.mark.slow
def test_without_the_neighbour_nobody_is_blamed(alone: Checked) -> None:
    for others in (BY_NEIGHBOUR, BY_HYPERVISOR):
        if others in alone.findings:
            pytest.skip(f"this machine is contended: {alone.findings[others]['message']}")
    assert alone.check("PD12")["outcome"] == "clear", alone.stdout
