"""One batch of an evaluation, line by line: what runs for each of its samples."""

from __future__ import annotations

import json

import pytest
from observing import Observer, line_of

from perfdoctor.evidence.evaluation import by_sample
from perfdoctor.recording.base import Missing

SAMPLES = 32


@pytest.mark.parametrize(
    ("arguments", "marks"),
    [
        (("loop",), {"loop", "helper"}),
        pytest.param(("loop", "1"), {"loop", "helper"}, marks=pytest.mark.slow),
        pytest.param(("comprehension",), {"comprehension", "helper"}, marks=pytest.mark.slow),
        pytest.param(("generator",), {"generator"}, marks=pytest.mark.slow),
        (("classes",), set()),
        pytest.param(("whole",), set(), marks=pytest.mark.slow),
    ],
    ids=["loop", "single batches", "comprehension", "generator", "classes", "whole"],
)
def test_lines_that_run_for_each_sample_are_told_from_those_that_do_not(
    observe: Observer, arguments: tuple[str, ...], marks: set[str]
) -> None:
    seen = observe("evaluates.py", *arguments, windows="lines")
    seen.same()
    seen.healthy()
    lines = by_sample(seen.rank, SAMPLES)
    assert not isinstance(lines, Missing)
    assert {line_of(line.site).partition("  # ")[2] for line in lines} - {""} == marks
    assert (sum(line.share for line in lines) > 0.5) is bool(marks)
    (file,) = seen.run.glob("process-*.jsonl")
    windows = [record for record in map(json.loads, file.read_text().splitlines()) if record["k"] == "window"]
    assert [record["name"] for record in windows].count("evaluation") == 1
