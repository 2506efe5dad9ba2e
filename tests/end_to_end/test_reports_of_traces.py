"""`perfdoctor report TRACE`: what torch.profiler recorded elsewhere, judged like a run of one's own."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from traces_as_files import starving

from perfdoctor.exits import Exit

NAMES = {"json": "json", "md": "markdown"}


def _write(path: Path, trace: dict[str, Any]) -> Path:
    path.write_text(json.dumps(trace))
    return path


def test_a_trace_is_judged_in_the_words_of_a_run(said: Any, tmp_path: Path) -> None:
    report = said("report", _write(tmp_path / "trace.json", starving()))
    assert report.code == Exit.FINDINGS
    assert "PD03.waiting-for-data" in report.stdout
    assert "the device has nothing to do for" in report.stdout
    assert "train.py:41" in report.stdout
    assert "checks need a run of the job" in report.stdout
    assert "at best" in report.stdout


def test_compressed_traces_and_other_formats(said: Any, tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps(starving()).encode()))
    report = said(
        "report", path, "--output", f"json:{tmp_path / 'r.json'}", "--output", f"markdown:{tmp_path / 'r.md'}"
    )
    assert report.code == Exit.FINDINGS
    document = json.loads((tmp_path / "r.json").read_text())
    assert document["activity"]["idle"][0]["cause"] == "waiting for data"
    assert document["environment"]["job"]["traced"] is True
    assert "PD03.waiting-for-data" in (tmp_path / "r.md").read_text()


def test_one_trace_of_each_rank_gives_one_report(said: Any, tmp_path: Path) -> None:
    folder = tmp_path / "ranks"
    folder.mkdir()
    paths = [_write(folder / f"rank{rank}.json", starving(rank=rank, ranks=2)) for rank in range(2)]
    whole, listed = said("report", folder), said("report", *paths)
    assert "one of 2" in whole.stdout
    assert whole.stdout.split("All numbers")[0] == listed.stdout.split("All numbers")[0]


def test_a_cut_trace_is_judged_as_far_as_it_goes(said: Any, tmp_path: Path) -> None:
    text = json.dumps(starving(steps=8))
    (tmp_path / "cut.json").write_text(text[: int(0.8 * len(text))])
    report = said("report", tmp_path / "cut.json")
    assert "PD03.waiting-for-data" in report.stdout
    assert "ends in the middle" in report.stdout


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS"),
        ("", "empty"),
        ("<!DOCTYPE html><html>", "web page"),
        ('{"a": 1}', "traceEvents"),
        ('{"traceEvents": []}', "no operator"),
    ],
)
def test_what_is_no_trace_is_refused_with_what_to_do(said: Any, tmp_path: Path, content: str, word: str) -> None:
    (tmp_path / "x.json").write_text(content)
    report = said("report", tmp_path / "x.json")
    assert report.code == Exit.USAGE
    assert word in report.stderr
    assert "Traceback" not in report.stderr


def test_two_traces_side_by_side(said: Any, tmp_path: Path) -> None:
    before = _write(tmp_path / "before.json", starving())
    after = _write(tmp_path / "after.json", starving(wait_us=0))
    report = said("diff", before, after)
    assert report.code == Exit.OK
    assert "no longer found: PD03.waiting-for-data" in report.stdout


@pytest.mark.parametrize(("more", "code"), [(0, Exit.OK), (3, Exit.FINDINGS)])
def test_a_gate_of_traces_counts_operators_and_kernels(said: Any, tmp_path: Path, more: int, code: Exit) -> None:
    before = _write(tmp_path / "before.json", starving(wait_us=0))
    after = _write(tmp_path / "after.json", starving(wait_us=0, products=2 + more))
    report = said("gate", "--from", before, after)
    assert report.code == code, report.stdout
    assert ("kernels per step" in report.stdout) is (more > 0)


def test_a_name_with_markup_stays_text(said: Any, tmp_path: Path) -> None:
    trace = starving()
    for event in trace["traceEvents"]:
        if event["name"].startswith("train.py"):
            event["name"] = "[red]<b>train.py(41): main"
    report = said("report", _write(tmp_path / "trace.json", trace), "--output", f"markdown:{tmp_path / 'r.md'}")
    assert report.code == Exit.FINDINGS
    assert "Traceback" not in report.stderr


@pytest.mark.parametrize("kept", [("kernel",), ("cpu_op", "user_annotation")], ids=["kernels only", "host only"])
def test_a_filtered_trace_alarms_for_nothing_that_it_does_not_hold(
    said: Any, tmp_path: Path, kept: tuple[str, ...]
) -> None:
    trace = starving(wait_us=0)
    trace["traceEvents"] = [event for event in trace["traceEvents"] if event["cat"] in kept]
    report = said("report", _write(tmp_path / "trace.json", trace))
    assert report.code == Exit.OK, report.stdout
    assert "What to fix" not in report.stdout
