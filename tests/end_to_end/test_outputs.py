"""What reaches stdout, stderr and files, and that an old recording is judged as the run was."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from launches import Launches
from running import JOBS, Checked, Perfdoctor, Said

RECORDINGS = Path(__file__).parent.parent / "recordings"


@pytest.fixture
def machine_readable(launches: Launches) -> Checked:
    """JSON on stdout, markdown in a file, lines while it runs."""

    def launch(here: Path) -> Checked:
        return Perfdoctor(here, launches)(
            "check",
            *("--output", "json", "--output", "markdown:report.md", "--output", "html:report.html"),
            *("--log-every", "10", "--runs", "runs"),
            *(JOBS / "train.py", "--steps", "45"),
        )

    return launches.once("json on stdout, markdown in a file, a line every ten steps", launch)


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


def test_markdown_goes_to_its_file(machine_readable: Checked) -> None:
    text = (machine_readable.runs.parent / "report.md").read_text()
    assert "```mermaid" in text and "| " in text
    assert "PD04" in text


def test_the_page_goes_to_its_file(machine_readable: Checked) -> None:
    text = (machine_readable.runs.parent / "report.html").read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>") and text.endswith("</html>\n")
    assert "train.py" in text and "Where the steady step goes" in text


def tracks(text: bytes) -> dict[str, list[dict[str, Any]]]:
    """What lies on each named track of a trace."""
    events = json.loads(text)["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    return {name: [e for e in events if e["tid"] == tid and e["ph"] == "X"] for tid, name in names.items()}


def test_the_trace_has_steps_parts_and_findings(collecting: Checked) -> None:
    assert "trace.json.gz: open it in https://ui.perfetto.dev" in collecting.stderr
    found = tracks(gzip.decompress((collecting.runs.parents[1] / "trace.json.gz").read_bytes()))
    (step, *_), parts = found["perfdoctor: steps"], found["perfdoctor: parts of the step"]
    assert all(step["ts"] <= part["ts"] for part in parts)
    assert {"forward pass", "backward pass", "optimizer step"} <= {part["name"] for part in parts}
    collections = [(e["ts"], e["dur"]) for e in parts if e["name"] == "garbage collection"]
    blamed = found["perfdoctor: error PD04.explicit-collect"]
    assert collections and [(e["ts"], e["dur"]) for e in blamed] == collections


def test_viewers_can_draw_the_trace(collecting: Checked) -> None:
    events = json.loads(gzip.decompress((collecting.runs.parents[1] / "trace.json.gz").read_bytes()))["traceEvents"]
    lasting: dict[tuple[object, object], list[tuple[float, float, str]]] = {}
    for event in events:
        assert {"ph", "ts", "pid", "tid", "name"} <= event.keys()
        if event["ph"] == "X":
            track = lasting.setdefault((event["pid"], event["tid"]), [])
            track.append((event["ts"], -event["ts"] - event["dur"], event["name"]))
    assert any(name.startswith("ProfilerStep#") for track in lasting.values() for _, _, name in track)
    for track in lasting.values():
        ends: list[float] = []
        for start, minus_end, name in sorted(track):
            while ends and ends[-1] <= start + 0.001:
                ends.pop()
            assert not ends or -minus_end <= ends[-1] + 0.01, f"{name} ends outside what it began in"
            ends.append(-minus_end)


def test_the_trace_can_be_written_again(said: Said, tmp_path: Path, collecting: Checked) -> None:
    said("report", collecting.run, "--trace", "again.json")
    again = tracks((tmp_path / "again.json").read_bytes())
    first = tracks(gzip.decompress((collecting.runs.parents[1] / "trace.json.gz").read_bytes()))
    assert again["perfdoctor: steps"] == first["perfdoctor: steps"]
    assert again["perfdoctor: error PD04.explicit-collect"] == first["perfdoctor: error PD04.explicit-collect"]


def test_a_page_draws_the_steps_and_one_of_them_in_lanes(said: Said, tmp_path: Path, collecting: Checked) -> None:
    said("report", collecting.run, "--output", "html:page.html")
    page = (tmp_path / "page.html").read_text()
    assert re.findall(r'data-chart="(\w+)"', page) == ["steps", "distributions", "lanes"]
    assert "full garbage collection (" in page
    assert "parts of the step" in page


def test_a_recording_without_a_trace_says_how_to_get_one(said: Said, tmp_path: Path) -> None:
    checked = said("report", RECORDINGS / "demo", "--trace", "none.json")
    assert "no trace was kept; record one with `perfdoctor check --trace FILE`" in checked.stderr
    assert not (tmp_path / "none.json").exists()


@pytest.mark.parametrize(("file", "slug"), [("trace.txt", "trace-name"), ("nowhere/trace.json", "trace-unwritable")])
def test_a_trace_that_cannot_be_written_is_refused_before_the_job_starts(said: Said, file: str, slug: str) -> None:
    checked = said("check", "--trace", file, JOBS / "train.py")
    assert (checked.code, f"[{slug}]" in checked.stderr) == (2, True)
    assert not checked.runs.exists()


def test_the_recording_judged_again_says_the_same(perfdoctor: Perfdoctor, machine_readable: Checked) -> None:
    checked = perfdoctor("report", machine_readable.run, "--output", "json")
    assert checked.code == machine_readable.code
    assert json.loads(checked.stdout) == json.loads(machine_readable.stdout)


def test_a_recording_is_judged_without_torch(perfdoctor: Perfdoctor, machine_readable: Checked) -> None:
    code = (
        "import sys; sys.modules['torch'] = None; from perfdoctor.cli import main\n"
        f"sys.argv = ['perfdoctor', 'report', {str(machine_readable.run)!r}]; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=perfdoctor.environment, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == machine_readable.code, done.stderr
    assert b"The steady step takes" in done.stdout


def test_fail_on_can_be_changed_afterwards(said: Said, collecting: Checked) -> None:
    assert said("report", collecting.run, "--fail-on", "error").code == 1
    never = said("report", collecting.run, "--fail-on", "never")
    assert never.code == 0
    assert "PD04.explicit-collect" in never.stdout
    assert said("report", collecting.run, "--ignore", "PD04", "--select", "PD04").code == 0


def test_what_is_suppressed_is_shown_with_its_reason_and_no_longer_counts(
    said: Said, tmp_path: Path, collecting: Checked
) -> None:
    (tmp_path / "perfdoctor.toml").write_text('[[suppress]]\ncode = "PD04.explicit-collect"\nreason = "a test"\n')
    suppressed = said("report", collecting.run)
    assert suppressed.code == 0
    assert "PD04.explicit-collect" in suppressed.stdout and "a test" in suppressed.stdout


def test_a_reader_that_leaves_is_no_error(perfdoctor: Perfdoctor, machine_readable: Checked) -> None:
    done = subprocess.run(
        [
            "bash",
            "-c",
            f'"{sys.executable}" -m perfdoctor report "{machine_readable.run}" | head -1; exit ${{PIPESTATUS[0]}}',
        ],
        env=perfdoctor.environment,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == b""
    assert done.returncode in (0, machine_readable.code)
