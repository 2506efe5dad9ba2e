"""Why a version is slower: parts, counters with their lines, findings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import samples
from baselines import finding
from diagnosis_samples import found_by

from perfdoctor.diagnosis.diagnoses import Diagnosis
from perfdoctor.evidence.model import CallSite, Missing, Parts, Site
from perfdoctor.gate.model import Assume, Judgement, Verdict
from perfdoctor.gate.why import explain

ROSE = Judgement("op:aten::item", "item", "count", Assume.EXACT, 8.0, 9.0, Verdict.REGRESSION, "counted", 1.0)
SAME = Judgement("op:aten::mm", "mm", "count", Assume.EXACT, 8.0, 8.0, Verdict.PASS, "counted", 0.0)


def diagnosis(*findings: Any, parts: Parts | None = None, calls: tuple[CallSite, ...] | Missing = ()) -> Diagnosis:
    evidence = samples.with_(samples.healthy(), call_sites=calls)
    if parts is not None:
        evidence = replace(evidence, step=samples.step(parts))
    return Diagnosis(evidence, found_by(*findings), None)


def item(line: int, function: str = "train", calls: float = 1.0) -> CallSite:
    return CallSite("scalar_read", Site("train.py", line, function), calls, 0.1)


def test_parts_that_moved_come_with_the_largest_growth_first() -> None:
    before = diagnosis(parts=Parts(forward=4.0, backward=5.0, optimizer=1.0, gc=0.01))
    after = diagnosis(parts=Parts(forward=4.5, backward=4.0, optimizer=2.5, gc=0.02))
    parts = explain(before, after, []).parts
    assert [name for name, _, _ in parts] == ["optimizer", "forward", "backward"]
    assert parts[0][1:] == (1.0, 2.5)


def test_counters_are_named_with_the_new_line() -> None:
    before, after = diagnosis(calls=(item(3),)), diagnosis(calls=(item(3), item(9)))
    assert explain(before, after, [ROSE, SAME]).counters == (
        "aten::item +1 per step",
        "scalar reads, conversions and copies at new places: train.py:9 (scalar read)",
    )


def test_a_line_that_only_moved_is_not_new() -> None:
    assert explain(diagnosis(calls=(item(3),)), diagnosis(calls=(item(5),)), []).counters == ()


def test_a_line_that_reads_more_often_is_named() -> None:
    (text,) = explain(diagnosis(calls=(item(3),)), diagnosis(calls=(item(3, calls=8.0),)), []).counters
    assert "train.py:3" in text


def test_findings_that_came_and_went() -> None:
    gone, new = finding(), finding("PD10.item")
    why = explain(diagnosis(gone), diagnosis(new), [])
    assert why.findings == ("PD10.item at train.py:3",)
    assert why.gone == ("PD04.explicit-collect at train.py:3",)


def test_what_was_not_seen_explains_nothing() -> None:
    unseen = Diagnosis(samples.empty(), (), None)
    why = explain(unseen, diagnosis(calls=(item(3),)), [])
    assert (why.parts, why.counters, why.findings) == ((), (), ())


def test_against_stored_numbers_only_what_failed_is_told() -> None:
    new = Judgement("finding:PD10.item", "x", "count", Assume.EXACT, 0, 1, Verdict.REGRESSION, "new", 1)
    why = explain(None, diagnosis(finding(), finding("PD10.item")), [new, ROSE])
    assert why.findings == ("PD10.item at train.py:3",)
    assert why.counters == ("aten::item +1 per step",)
