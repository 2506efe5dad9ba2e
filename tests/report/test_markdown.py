from __future__ import annotations

from dataclasses import replace

import diagnosis_samples as samples
import pytest

from perfdoctor.diagnosis.diagnoses import Diagnosis
from perfdoctor.diagnosis.findings import Fix
from perfdoctor.report import markdown
from perfdoctor.report.markdown import render_markdown


def written(diagnosis: Diagnosis) -> str:
    return render_markdown(diagnosis, next_command="perfdoctor report RUN")


def test_the_report_comes_in_the_same_order_as_on_the_console() -> None:
    text = written(samples.two_findings())
    pieces = (
        "# perfdoctor: `python train.py --name 'a b'`",
        "**The steady step takes 24.8 ms",
        "## Where the steady step goes (24.8 ms)",
        "| waiting for data | 14.2 ms | 57 % |",
        "```mermaid\npie showData",
        '    "waiting for data" : 14.2',
        "| 1 | error: `PD03.too-few-workers` | 57 % of the step | speed-up 1.8x to 2.2x, saves 11 to 13 ms per step",
        "do not add them",
        "### 1. ✗ `PD03.too-few-workers`",
        "`train.py:41 in main`, all ranks",
        "- **Predicted:** speed-up 1.8x to 2.2x, saves 11 to 13 ms per step",
        "```python\nloader = DataLoader(\n    dataset,",
        "**Risk:** Each worker holds a copy",
        "<details>\n<summary>Why, and the numbers</summary>\n\nA worker needs 21.9 ms",
        "| arrivals that found the queue empty | 95 % |",
        "</details>",
        "### 2. ! `PD04.explicit-collect`",
        "## All checks",
        "**1 of 5 checks clear, 2 findings (1 error, 1 warning)",
        "<details>",
        "| ✓ | PD07&nbsp;dtype | data types | clear | all 12.3 GFLOP per step run in float32 |",
        "## How far to trust this run",
        "200 steady steps, mean ±1.8 %; other processes used 0.30 cores",
        "| own overhead | perfdoctor added 8.20 µs to each step (&lt;0.1 %)",
        "<details>",
        "| PyTorch | `2.13.0 (cpu)` |",
        "</details>",
        "```bash\nperfdoctor report RUN\n```",
    )
    place = 0
    for piece in pieces:
        assert piece in text[place:], piece
        place = text.index(piece, place)


def test_every_row_of_a_table_has_as_many_cells_as_its_head() -> None:
    for make in samples.ALL:
        head = 0
        for line in written(make()).splitlines():
            if not line.startswith("|"):
                head = 0
                continue
            bars = line.replace("\\|", "").count("|")
            head = head or bars
            assert bars == head, line


def test_hostile_text_prints_as_it_is() -> None:
    text = written(samples.troubled())
    assert "**a|b waits 14.2 ms in [red]x[/red] `y` &lt;module>.**" in text
    assert "needed for the leak test \\| see #12" in text
    assert "DataLoader.\\_\\_init\\_\\_ was switched off" in text
    assert "KeyError: '{x}' second line" in text
    assert "\x1b" not in text


def test_without_a_step_there_is_no_chart() -> None:
    text = written(samples.no_step())
    assert "mermaid" not in text
    assert "and no steady step was measured" in text
    assert "What to fix" not in text


def test_a_fence_is_longer_than_the_fences_inside() -> None:
    finding = replace(samples.WORKERS, fix=Fix("write this", '"""\n```python\nx\n```\n"""'))
    assert '````python\n"""\n```python' in written(samples.with_findings(samples.two_findings(), finding))


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a|b", "a\\|b"),
        ("two\nlines", "two lines"),
        ("one ` tick", "one \\` tick"),
        ("`a|b` stays code", "`a\\|b` stays code"),
        ("__init__ of num_workers", "\\_\\_init\\_\\_ of num_workers"),
        ("2 * 3 < 7 & more", "2 \\* 3 &lt; 7 &amp; more"),
        ("back\\slash", "back\\\\slash"),
    ],
)
def test_a_cell_cannot_break_its_table(text: str, escaped: str) -> None:
    assert markdown.cell(text) == escaped


def test_a_code_span_may_hold_backticks() -> None:
    assert markdown.code("a`b") == "``a`b``"
    assert markdown.code("`a`") == "`` `a` ``"
    assert markdown.code("") == ""


def test_the_text_has_no_stray_blank_lines() -> None:
    for make in samples.ALL:
        text = written(make())
        assert "\n\n\n" not in text
        assert text.endswith("</sub>\n")
