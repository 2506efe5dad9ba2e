"""Rates, from results made up by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.clinic import doctor
from benchmarks.clinic.judgement import Claim, Judgement
from benchmarks.clinic.rate import Rate
from benchmarks.clinic.score import Result, by_check, precision_of, score
from benchmarks.clinic.truth import Truth

GAIN = Truth(gain=2.0, low=1.9, high=2.1, control=1.0, rounds=5)
VAGUE = Truth(gain=20.0, low=10.0, high=40.0, control=1.0, rounds=3)
HARM = Truth(gain=0.7, low=0.65, high=0.75, control=1.0, rounds=5)
NULL = Truth(gain=1.0, low=0.96, high=1.04, control=1.0, rounds=5)
UNSURE = Truth(gain=1.5, low=0.8, high=2.8, control=1.0, rounds=5)


def result(*claims: Claim, **changes: Any) -> Result:
    facts: dict[str, Any] = {
        "case": "one",
        "stratum": "twins",
        "sick": True,
        "expect": ("PD07.float64",),
        "allow": (),
        "file": "train.py",
        "lines": (12,),
        "truth": GAIN,
        "order": (),
        "judgement": Judgement(claims),
    }
    return Result(**{**facts, **changes})


RIGHT = Claim("PD07.float64", file="train.py", line=12, speed_up=(1.5, 1.8, 2.2))
OTHER = Claim("PD03.too-few-workers", file="train.py", line=3)


def test_a_right_cause_at_the_right_line_is_a_hit() -> None:
    scores = score([result(RIGHT)])
    assert scores.recall == Rate(1, 1)
    assert scores.place == Rate(1, 1)
    assert scores.wrong_cause == Rate(0, 1)
    assert [(one.middle, one.true) for one in scores.predictions] == [(1.8, 2.0)]


def test_another_cause_instead_is_wrong_and_beside_the_right_one_is_not() -> None:
    assert score([result(OTHER)]).wrong_cause == Rate(1, 1)
    assert score([result(OTHER, RIGHT)]).wrong_cause == Rate(0, 1)
    assert score([result()]).recall == Rate(0, 1)


def test_notes_and_findings_about_the_measurement_are_no_alarms() -> None:
    note = Claim("PD07.float64", severity="note")
    about = Claim("PD92.contended-machine")
    assert score([result(about)]).recall == Rate(0, 1)
    assert score([result(note, about)]).recall == Rate(1, 1)  # it is told, as an opportunity
    assert score([result(note, about, sick=False)]).false_alarms == Rate(0, 1)


def test_a_fix_that_is_worth_little_need_not_be_found() -> None:
    little = Truth(gain=1.08, low=1.05, high=1.11, control=1.0, rounds=5)
    assert score([result(truth=little)]).recall == Rate(0, 0)


@pytest.mark.parametrize("changes", [{"sick": False}, {"stratum": "decoys"}, {"stratum": "out-of-scope"}])
def test_an_alarm_where_nothing_is_wrong_is_false(changes: dict[str, Any]) -> None:
    scores = score([result(OTHER, **changes)])
    assert scores.false_alarms == Rate(1, 1)
    assert scores.precision == Rate(0, 1)


@pytest.mark.parametrize(
    ("claims", "unexplained", "hits"), [((), True, 1), ((), False, 0), ((OTHER,), True, 0), ((OTHER,), False, 0)]
)
def test_what_no_check_names_is_to_be_said(claims: tuple[Claim, ...], unexplained: bool, hits: int) -> None:
    judgement = Judgement(claims, unexplained)
    assert score([result(stratum="out-of-scope", judgement=judgement)]).says_so == Rate(hits, 1)
    assert score([result(judgement=judgement)]).says_so == Rate(0, 0)


def test_what_is_true_of_a_program_anyway_is_no_alarm() -> None:
    assert score([result(OTHER, sick=False, allow=("PD03",))]).false_alarms == Rate(0, 1)


def test_advice_that_hurts_is_counted_where_it_was_measured_to() -> None:
    contra = {"stratum": "contra", "expect": ("PD03",), "truth": HARM}
    assert score([result(OTHER, **contra)]).harm == Rate(1, 1)
    assert score([result(**contra)]).harm == Rate(0, 1)
    assert score([result(OTHER, **{**contra, "truth": GAIN})]).harm == Rate(0, 0)


def test_of_several_causes_the_largest_comes_first() -> None:
    both = {"stratum": "comorbid", "expect": ("PD03", "PD07.float64"), "order": ("PD07.float64", "PD03")}
    assert score([result(RIGHT, OTHER, **both)]).first == Rate(1, 1)
    assert score([result(OTHER, RIGHT, **both)]).first == Rate(0, 1)


def test_a_program_without_judgement_is_counted_apart() -> None:
    failed = result(judgement=Judgement(failure="exit code 3"))
    scores = score([failed, result(RIGHT)])
    assert (scores.failures, scores.recall) == (1, Rate(1, 1))


def test_intervals_are_wilsons() -> None:
    low, high = Rate(9, 10).interval
    assert (low, high) == (pytest.approx(0.596, abs=0.001), pytest.approx(0.982, abs=0.001))
    assert Rate(0, 0).interval == (0.0, 1.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"truth": None},
        {"truth": UNSURE},
        {"truth": VAGUE},
        {"truth": replace(GAIN, here=False)},
        {"sick": False},
        {"stratum": "comorbid"},
        {"beyond": True},
    ],
)
def test_no_error_of_a_prediction_without_a_truth_of_its_own(changes: dict[str, Any]) -> None:
    assert score([result(RIGHT, **changes)]).predictions == ()


def test_predictions_of_notes_and_of_fixes_that_hurt_count() -> None:
    note = Claim("PD07.float64", severity="note", speed_up=(1.0, 1.1, 1.2))
    (said,) = score([result(note)]).predictions
    assert (said.middle, said.true) == (1.1, 2.0)
    (said,) = score([result(RIGHT, stratum="contra", truth=HARM)]).predictions
    assert (said.middle, said.true) == (1.8, 0.7)


def test_advice_that_changes_nothing_is_counted_where_it_was_measured_to() -> None:
    assert score([result(RIGHT, truth=NULL)]).useless == Rate(1, 1)
    assert score([result(truth=NULL)]).useless == Rate(0, 1)
    assert score([result(RIGHT, truth=NULL)]).harm == Rate(0, 0)
    assert score([result(RIGHT, truth=UNSURE)]).useless == Rate(0, 0)
    assert score([result(RIGHT, truth=NULL, sick=False)]).useless == Rate(0, 0)


def test_who_is_well_need_not_say_that_nothing_explains_it() -> None:
    outside = {"stratum": "out-of-scope", "expect": ()}
    assert score([result(**outside, sick=False)]).says_so == Rate(0, 0)
    assert score([result(**outside, sick=False, twin=False, truth=None)]).says_so == Rate(0, 1)
    assert score([result(**outside, truth=NULL)]).says_so == Rate(0, 0)


def test_a_check_is_precise_when_its_alarms_name_what_is_wrong() -> None:
    some = [result(RIGHT, OTHER), result(RIGHT, sick=False), result(OTHER, expect=("PD03",))]
    assert precision_of(some, "PD07") == Rate(1, 2)
    assert precision_of(some, "PD03") == Rate(1, 2)
    assert precision_of([result(RIGHT, stratum="contra")], "PD07") == Rate(0, 0)


def test_a_program_that_cannot_be_run_here_counts_nowhere() -> None:
    scores = score([result(judgement=Judgement(skipped="not allowed here")), result(RIGHT)])
    assert (scores.skipped, scores.failures, scores.recall) == (1, 0, Rate(1, 1))


def test_each_check_has_a_row() -> None:
    rows = by_check([result(RIGHT), result(expect=("PD03",))])
    assert {code: row.recall for code, row in rows.items()} == {"PD03": Rate(0, 1), "PD07": Rate(1, 1)}


@pytest.mark.parametrize(
    ("gain", "low", "high", "control", "label"),
    [
        (2.0, 1.8, 2.2, 1.01, "positive"),
        (1.0, 0.96, 1.04, 1.0, "null"),
        (0.7, 0.6, 0.8, 1.0, "harmful"),
        (1.2, 0.8, 1.8, 1.0, "ambiguous"),
        (1.2, 1.1, 1.3, 1.3, "ambiguous"),
    ],
)
def test_a_fix_is_labelled_by_its_interval_and_its_control(
    gain: float, low: float, high: float, control: float, label: str
) -> None:
    assert Truth(gain, low, high, control, rounds=3).label == label


def test_a_report_becomes_claims_in_its_own_order() -> None:
    def finding(name: str, mark: str, saved: float, part: str = "compute") -> dict[str, Any]:
        return {
            "id": name,
            "severity": "warning",
            "fingerprint": mark,
            "location": {"file": "src/train.py", "line": 7, "function": "f"},
            "savings": {"low_ms": saved, "high_ms": saved, "ceiling_ms": 1.5 * saved, "part": part},
            "fix": {"remedies": [f"remedy.{mark}"]},
        }

    report = {
        "unexplained": {"ms": 1.0, "share": 0.1},
        "anatomy": {"step_ms": 10.0, "irregular_ms": 6.0},
        "ranked": ["b", "a"],
        "checks": [{"findings": [finding("PD03.x", "a", 8.0, "epoch")]}, {"findings": [finding("PD07.y", "b", 5.0)]}],
    }
    judgement = doctor.read(report, seconds=3.0)
    assert (judgement.seconds, judgement.failure, judgement.skipped, judgement.unexplained) == (3.0, "", "", False)
    assert [claim.id for claim in judgement.claims] == ["PD07.y", "PD03.x"]
    first = judgement.claims[0]
    assert (first.file, first.line) == ("train.py", 7)
    assert first.speed_up == (pytest.approx(2.0),) * 3
    assert first.ceiling == pytest.approx(4.0)
    assert first.remedies == ("remedy.b",)
    assert judgement.claims[1].speed_up == (pytest.approx(2.0),) * 3  # of the step with its epochs' starts
    nothing = {**report, "checks": [{"findings": []}]}
    assert doctor.read(nothing).unexplained
    assert not doctor.read({**nothing, "unexplained": None}).unexplained
