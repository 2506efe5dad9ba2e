"""The tables and the numbers for machines say the same, also of what was not measured."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from benchmarks.clinic.case import Case, cases
from benchmarks.clinic.judgement import Claim, Judgement
from benchmarks.clinic.score import Result
from benchmarks.clinic.summary import scores
from benchmarks.clinic.table import inventory, render
from benchmarks.clinic.truth import Truth

GAIN = Truth(gain=2.0, low=1.9, high=2.1, control=1.0, rounds=5)


def result(case: str, sick: bool, judgement: Judgement, truth: Truth | None = GAIN, stratum: str = "twins") -> Result:
    return Result(case, stratum, sick, ("PD03",), (), "train.py", (7,), truth, (), judgement)


CLAIM = Claim("PD03.transform", file="train.py", line=7, speed_up=(1.5, 1.8, 2.2), ceiling=3.0)
FOUND = {
    "perfdoctor": [
        result("photos", True, Judgement((CLAIM,))),
        result("photos", False, Judgement()),
        result("kiln", True, Judgement(skipped="not allowed here: read-only file system"), stratum="contended"),
        result("ships", True, Judgement(), truth=None),
    ],
    "TraceML": [result("photos", True, Judgement(failure="exit code 1"))],
}


def shown(found: dict[str, list[Result]]) -> str:
    console = Console(width=140)
    with console.capture() as text:
        console.print(render(found))
    return text.get()


def test_numbers_are_json_and_whole() -> None:
    numbers = json.loads(json.dumps(scores(FOUND), allow_nan=False))
    mine = numbers["perfdoctor"]
    assert (mine["all"]["recall"]["hits"], mine["all"]["recall"]["trials"]) == (1, 2)
    assert mine["all"]["skipped"] == 1
    assert mine["checks"]["PD03"]["precision"]["value"] == 1.0
    assert mine["weighted"]["production_jobs"]["recall"]["tried"] == 0.5
    assert mine["all"]["predictions"]["its own"]["speed_up_median"] == pytest.approx(0.1)
    assert mine["all"]["predictions"]["always 1.0x"]["speed_up_median"] == pytest.approx(0.5)
    assert [program["label"] for program in mine["programs"]] == ["positive", "positive", "positive", "by intent"]
    assert numbers["TraceML"]["all"]["failures"] == 1
    assert numbers["TraceML"]["all"]["recall"]["value"] is None


def test_the_table_says_what_was_not_run_and_what_was_missed() -> None:
    text = shown(FOUND)
    assert "kiln: not allowed here: read-only file system" in text
    assert "ships: missed PD03, said nothing" in text
    assert "1/2 [0.09, 0.91]" in text
    assert "all the time that is blamed" in text


def test_the_inventory_counts_each_case() -> None:
    console = Console(width=140)
    with console.capture() as text:
        console.print(inventory([Case("one", "", "twins", "text", expect=("PD07.float64", "PD03"), smoke=True)]))
    rows = [line.split("│")[1:-1] for line in text.get().splitlines() if "PD0" in line]
    assert [(row[0].strip(), row[1].strip(), row[-1].strip()) for row in rows] == [
        ("PD03", "1", "1"),
        ("PD07", "1", "1"),
    ]


def test_the_smoke_subset_has_every_check_and_every_stratum_once() -> None:
    some = [case for case in cases() if case.smoke]
    every = cases()
    codes = {one.partition(".")[0] for case in every for one in case.expect}
    assert {one.partition(".")[0] for case in some for one in case.expect} == codes
    assert {case.stratum for case in some} == {case.stratum for case in every}
