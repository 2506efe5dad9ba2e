"""What reaches stdout, stderr and files, and that an old recording is judged as the run was."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from running import JOBS, Checked, Perfdoctor

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def machine_readable(perfdoctor_once: Perfdoctor) -> Checked:
    """JSON on stdout, markdown in a file, lines while it runs."""
    return perfdoctor_once(
        "check",
        *("--output", "json", "--output", "markdown:report.md", "--log-every", "10", "--runs", "runs"),
        *(JOBS / "train.py", "--steps", "45"),
    )


def test_stdout_is_nothing_but_json(machine_readable: Checked) -> None:
    report = json.loads(machine_readable.stdout)
    assert report["schema"] == "perfdoctor.report/1"
    assert {check["code"] for check in report["checks"]} >= {"PD03", "PD04", "PD07", "PD08", "PD13"}


def test_the_jobs_lines_go_to_stderr_then(machine_readable: Checked) -> None:
    lines = machine_readable.stderr.splitlines()
    assert "training for 45 steps, verbose False" in lines and "trained" in lines


def test_lines_look_like_those_of_the_guides_listener(machine_readable: Checked) -> None:
    lines = [line for line in machine_readable.stderr.splitlines() if line.startswith("ETL: ")]
    number = r"[\d.]+"
    pattern = (
        rf"ETL: {number} ms; iteration (\d+); iteration time: {number} ms; samples/sec: {number}; "
        rf"batches/sec: {number}; GC: \d+( \({number} ms\))?(; CPU: {number} cores; memory: {number} MiB)?"
    )
    assert [re.fullmatch(pattern, line)[1] for line in lines] == ["10", "20", "30", "40"], lines


def test_markdown_goes_to_its_file(perfdoctor_once: Perfdoctor, machine_readable: Checked) -> None:
    text = (perfdoctor_once.directory / "report.md").read_text()
    assert "```mermaid" in text and "| " in text
    assert "PD04" in text


def test_the_recording_judged_again_says_the_same(perfdoctor_once: Perfdoctor, machine_readable: Checked) -> None:
    checked = perfdoctor_once("report", machine_readable.run, "--output", "json")
    assert checked.code == machine_readable.code
    assert json.loads(checked.stdout) == json.loads(machine_readable.stdout)


def test_a_recording_is_judged_without_torch(perfdoctor_once: Perfdoctor, machine_readable: Checked) -> None:
    code = (
        "import sys; sys.modules['torch'] = None; from perfdoctor.cli import main\n"
        f"sys.argv = ['perfdoctor', 'report', {str(machine_readable.run)!r}]; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=perfdoctor_once.environment, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == machine_readable.code, done.stderr
    assert b"The steady step takes" in done.stdout


def test_fail_on_can_be_changed_afterwards(perfdoctor_once: Perfdoctor, tmp_path: Path) -> None:
    checked = perfdoctor_once.check("--steps", "20", "--fail-on", "never", JOBS / "collects.py")
    assert checked.code == 0
    assert perfdoctor_once("report", checked.run, "--fail-on", "error").code == 1
    assert perfdoctor_once("report", checked.run, "--ignore", "PD04", "--select", "PD04").code == 0
    # Suppressed, with a reason: shown, but it no longer counts.
    (tmp_path / "perfdoctor.toml").write_text('[[suppress]]\ncode = "PD04.explicit-collect"\nreason = "a test"\n')
    suppressed = perfdoctor_once("report", checked.run, cwd=tmp_path)
    assert suppressed.code == 0
    assert "PD04.explicit-collect" in suppressed.stdout and "a test" in suppressed.stdout


def test_a_reader_that_leaves_is_no_error(perfdoctor_once: Perfdoctor, machine_readable: Checked) -> None:
    done = subprocess.run(
        [
            "bash",
            "-c",
            f'"{sys.executable}" -m perfdoctor report "{machine_readable.run}" | head -1; exit ${{PIPESTATUS[0]}}',
        ],
        env=perfdoctor_once.environment,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == b""
    assert done.returncode in (0, machine_readable.code)
