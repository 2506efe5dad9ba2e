"""A gate in words: the verdict first, exact differences, and why."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from gate_samples import BETTER, DOUBT, REGRESSION, RESULTS, SYNCS
from rich.console import Console

from perfdoctor.gate.model import GateResult
from perfdoctor.report.anatomy import BAR
from perfdoctor.report.gate_console import render_gate_console
from perfdoctor.report.gate_json import SCHEMA, render_gate_json
from perfdoctor.report.gate_markdown import MARKER, render_gate_markdown
from perfdoctor.report.gate_words import change


def text(result: GateResult, **options: bool) -> str:
    console = Console(width=140, no_color=True)
    with console.capture() as capture:
        console.print(render_gate_console(result, **options))
    return capture.get()


@pytest.mark.parametrize("result", RESULTS)
def test_the_verdict_comes_first(result: GateResult) -> None:
    word = result.verdict.value.replace("-", " ").upper()
    assert text(result).startswith(word)
    markdown = render_gate_markdown(result)
    assert markdown.startswith(f"{MARKER}\n## {word}")
    found = json.loads(render_gate_json(result, 1))
    assert (found["schema"], found["verdict"], found["exit_code"]) == (SCHEMA, result.verdict.value, 1)


def test_times_have_intervals_and_counters_exact_differences() -> None:
    page = text(REGRESSION)
    assert "10.0 ms → 10.6 ms" in page
    assert "+6.0 % [+5.0, +7.0]" in page
    assert "calls of aten::item per step" in page
    assert "8 → 9" in page
    assert "+1" in page


def test_why_shows_the_parts_the_counters_and_the_new_finding() -> None:
    for page in (text(REGRESSION), render_gate_markdown(REGRESSION)):
        assert "+0.60 ms" in page
        assert "train.py:12" in page
        assert "new finding: PD10.sync" in page
        assert "/tmp/runs/base" in page


def test_both_arms_are_bars_on_one_scale_where_there_is_no_picture() -> None:
    assert REGRESSION.why is not None
    rows = [line for line in render_gate_markdown(REGRESSION).splitlines() if "<br>" in line]
    assert len(rows) == len(REGRESSION.why.parts)
    longest = max(ms for _, *both in REGRESSION.why.parts for ms in both)
    for row, (_, before, now) in zip(rows, REGRESSION.why.parts, strict=True):
        assert row.count("░") == max(1, round(BAR * before / longest))
        assert row.count("█") == max(1, round(BAR * now / longest))


def test_what_is_the_same_is_summed_up_and_listed_when_asked_for() -> None:
    assert "aten::mm" not in text(REGRESSION)
    assert "1 is the same" in text(REGRESSION)
    assert "aten::mm" in text(REGRESSION, verbose=True)


def test_the_raw_pairs_are_kept() -> None:
    assert json.loads(render_gate_json(REGRESSION, 1))["pairs"] == {"step_time.core": [0.06] * 16}


def test_doubt_and_improvement_are_marked() -> None:
    assert "  ?" in text(DOUBT)
    assert "-8.0 %" in text(BETTER)


def test_what_rounds_to_nothing_has_no_sign() -> None:
    tiny = replace(SYNCS, before=1.0, after=0.999, change=-0.001)
    assert change(tiny) == "±0"
    assert change(replace(SYNCS, change=-2.0)) == "-2"
    assert change(replace(SYNCS, unit="bytes", change=1 << 20)) == "+1.00 MiB"
