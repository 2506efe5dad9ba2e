"""Slow, and none of the checks: the report says where the time goes."""

from __future__ import annotations

from dataclasses import replace

from diagnosis_samples import EVIDENCE, STEP, healthy, no_step, two_findings, with_findings

from perfdoctor.diagnosis.diagnoses import Combined, Diagnosis
from perfdoctor.diagnosis.findings import Severity
from perfdoctor.evidence.model import CodeLine, Line, Parts, Site
from perfdoctor.report.console import render_console
from perfdoctor.report.content import prepare
from perfdoctor.report.markdown import render_markdown
from perfdoctor.report.verdict import verdict, whereabouts


def line(number: int, ms: float, part: str = "other", function: str = "main") -> Line:
    return Line(Site("train.py", number, function), part, 10.0, ms, ms / 2, ms / 20, 0.1, 1.0)


def with_lines(diagnosis: Diagnosis, *lines: Line) -> Diagnosis:
    return replace(diagnosis, evidence=replace(diagnosis.evidence, hot_lines=lines))


LINES = (line(41, 8.0), line(7, 4.0, "forward", "forward"), line(9, 2.0), line(12, 1.0), line(41, 0.5, "forward"))


def slow() -> Diagnosis:
    parts = Parts(input_wait=0.5, forward=4.0, backward=3.0, optimizer=0.5, other=12.0)
    step = replace(STEP, step_ms=parts.total, parts=parts)
    return with_lines(replace(healthy(), evidence=replace(EVIDENCE, step=step)), *LINES)


def test_the_largest_part_and_the_three_hottest_lines_are_named() -> None:
    text = whereabouts(slow())
    assert text.startswith("The largest part of the step is other code in the loop, 12.0 ms (60 %)")
    assert text.index("train.py:41 in main (42 %)") < text.index("train.py:7 in forward (20 %)")
    assert "train.py:9" in text
    assert "train.py:12" not in text


def test_it_is_in_every_report_that_people_read() -> None:
    text = whereabouts(slow())
    assert prepare(slow()).whereabouts == text
    assert "train.py:41 in main" in render_markdown(slow(), next_command="")
    assert render_console(slow(), next_command="") is not None


def test_findings_that_explain_the_step_leave_nothing_to_say() -> None:
    assert whereabouts(with_lines(two_findings(), *LINES)) == ""


def test_findings_that_explain_little_are_told_from_the_rest() -> None:
    found = two_findings()
    small = [replace(f, savings=replace(f.savings, ceiling_ms=1.0, low_ms=0.1, high_ms=0.5)) for f in found.ranked]
    diagnosis = with_findings(slow(), *small)
    assert whereabouts(diagnosis).startswith("Beside the findings, the largest part of the step is other code")


def test_without_a_step_or_lines_there_is_nothing_to_say() -> None:
    assert whereabouts(no_step()) == ""
    assert whereabouts(healthy()) == ""
    assert whereabouts(with_lines(healthy())) == ""


def noted(diagnosis: Diagnosis, *, saved_ms: float = 12.0, general: bool = True) -> Diagnosis:
    """With one note, which would help whatever the time goes into, or says what it goes into."""
    first = two_findings().ranked[0]
    savings = replace(first.savings, ceiling_ms=saved_ms, low_ms=saved_ms / 2, high_ms=saved_ms, general=general)
    note = replace(first, severity=Severity.NOTE, savings=savings)
    together = Combined(saved_ms / 2, saved_ms, 20.0) if saved_ms else None
    return replace(with_findings(diagnosis, note), combined=together)


def test_an_opportunity_is_no_cause() -> None:
    """What a larger batch would give is a choice: the time still goes to none of the checks."""
    text = verdict(noted(slow()))
    assert "of which 12.0 ms (60 %) is other code in the loop, but none of the checks" in text
    assert "1 opportunity is below (speed-up 1.4x to 2.5x)" in text
    assert whereabouts(noted(slow())).startswith("Beside the findings, the largest part of the step is other code")
    assert whereabouts(noted(slow(), general=False)) == ""


def test_an_opportunity_that_predicts_nothing_is_counted() -> None:
    assert "none of the checks" in verdict(noted(slow(), saved_ms=0.0))
    assert verdict(noted(slow(), saved_ms=0.0)).endswith("1 opportunity is below.")


def test_an_alarm_beside_a_note_is_the_verdict() -> None:
    both = with_findings(noted(slow()), *two_findings().ranked, *noted(slow()).ranked)
    assert "none of the checks" not in verdict(both)


def test_lines_that_issue_no_operator_are_named_where_all_time_was_watched() -> None:
    simulator = CodeLine(Site("simulator.py", 88, "collide"), "other", False, 11.0, 0.9)
    diagnosis = slow()
    watched = replace(diagnosis, evidence=replace(diagnosis.evidence, code_lines=(simulator,)))
    assert "simulator.py:88 in collide (55 %)" in whereabouts(watched)
    assert "train.py:41" not in whereabouts(watched)


def test_a_large_part_beside_the_computing_has_lines_of_its_own() -> None:
    parts = Parts(forward=4.0, backward=9.0, optimizer=1.0, other=6.0)
    step = replace(STEP, step_ms=parts.total, parts=parts)
    update = CodeLine(Site("ema.py", 37, "update"), "other", True, 1.5, 0.25)
    computing = [CodeLine(Site("train.py", 60 + i, "main"), "backward", False, 3.0, 0.3) for i in range(3)]
    evidence = replace(EVIDENCE, step=step, code_lines=(*computing, update))
    text = whereabouts(replace(healthy(), evidence=evidence))
    assert text.startswith("The largest part of the step is backward pass")
    assert "Of other code in the loop, 6.00 ms (30 %), most is at ema.py:37 in update (7.5 %)." in text
    little = replace(evidence, step=replace(step, parts=replace(parts, backward=12.0, other=3.0)))
    assert "most is at" not in whereabouts(replace(healthy(), evidence=little))
