"""Formats for other programs, read back by the parsers of others."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import diagnosis_samples as samples
import jsonschema
import junitparser
import pytest
import sarif_om
from gate_samples import FAILED, RESULTS
from public_schemas import SARIF, require_valid

from perfdoctor.commands.outputs import SUMMARY_BYTES, Output, Pages, write
from perfdoctor.diagnosis.diagnoses import SuppressedFinding
from perfdoctor.diagnosis.findings import Location
from perfdoctor.diagnosis.outcomes import cannot_tell
from perfdoctor.gate.model import Verdict
from perfdoctor.report.gate_sheet import gate_sheet
from perfdoctor.report.junit import render_junit
from perfdoctor.report.platforms import render_concise, render_github, render_gitlab, render_jsonl
from perfdoctor.report.sarif import render_sarif
from perfdoctor.report.sheet import Notice, Sheet, Status, diagnosis_sheet, script_of

SHEETS = [diagnosis_sheet(make()) for make in samples.ALL] + [gate_sheet(result, "train.py") for result in RESULTS]
HOSTILE = Notice("PD03.x", "error", 'a % b,\nc: "d" <e>\x07', "do: this", Location("a b,c:d.py", 3, "f"), "0" * 32)


def hostile(count: int = 1) -> Sheet:
    return replace(SHEETS[0], notices=(HOSTILE,) * count, rules=(replace(SHEETS[0].rules[0], id="PD03.x"),))


def parsed(value: Any, kind: type) -> Any:
    """A SARIF object as the public object model has it; a property that the schema lacks, or needs, raises."""
    known = {a.metadata["schema_property_name"]: a.name for a in kind.__attrs_attrs__}  # type: ignore[attr-defined]
    inner = {
        "runs": sarif_om.Run,
        "tool": sarif_om.Tool,
        "driver": sarif_om.ToolComponent,
        "rules": sarif_om.ReportingDescriptor,
        "invocations": sarif_om.Invocation,
        "results": sarif_om.Result,
        "message": sarif_om.Message,
        "locations": sarif_om.Location,
        "physicalLocation": sarif_om.PhysicalLocation,
        "artifactLocation": sarif_om.ArtifactLocation,
        "region": sarif_om.Region,
        "logicalLocations": sarif_om.LogicalLocation,
        "suppressions": sarif_om.Suppression,
        "shortDescription": sarif_om.MultiformatMessageString,
        "fullDescription": sarif_om.MultiformatMessageString,
        "help": sarif_om.MultiformatMessageString,
    }

    def convert(name: str, item: Any) -> Any:
        if isinstance(item, list) and name in inner:
            return [parsed(one, inner[name]) for one in item]
        return parsed(item, inner[name]) if name in inner else item

    assert set(value) <= set(known), set(value) - set(known)
    return kind(**{known[name]: convert(name, item) for name, item in value.items()})


@pytest.mark.parametrize("sheet", [*SHEETS, hostile()])
def test_sarif_meets_the_public_schema(sheet: Sheet) -> None:
    require_valid(json.loads(render_sarif(sheet)), SARIF)


def test_what_is_no_sarif_is_noticed() -> None:
    document = json.loads(render_sarif(SHEETS[0]))
    document["runs"][0]["results"] = [{"level": "fatal"}]
    with pytest.raises(jsonschema.ValidationError):
        require_valid(document, SARIF)


@pytest.mark.parametrize("sheet", [*SHEETS, hostile()])
def test_sarif_is_what_its_object_model_knows(sheet: Sheet) -> None:
    log = parsed(json.loads(render_sarif(sheet)), sarif_om.SarifLog)
    (run,) = log.runs
    assert [result.rule_id for result in run.results] == [notice.rule for notice in sheet.notices]
    for result in run.results:
        assert run.tool.driver.rules[result.rule_index].id == result.rule_id
        assert result.level in ("error", "warning", "note")
        (place,) = result.locations
        assert re.fullmatch(r"[\w./%-]+", place.physical_location.artifact_location.uri)
        assert place.physical_location.region.start_line >= 1


def test_sarif_keeps_what_is_accepted_with_its_reason() -> None:
    diagnosis = samples.two_findings()
    first = diagnosis.checks[0]
    accepted = replace(
        first, outcome=cannot_tell("x"), suppressed=(SuppressedFinding(samples.EXPLICIT_GC, "until #12"),)
    )
    sheet = diagnosis_sheet(replace(diagnosis, checks=(accepted,)))
    (result,) = json.loads(render_sarif(sheet))["runs"][0]["results"]
    assert result["suppressions"] == [{"kind": "external", "justification": "until #12"}]
    assert render_concise(sheet).count("\n") == 1


@pytest.mark.parametrize("sheet", [*SHEETS, hostile()])
def test_junit_is_read_back_with_the_same_cases(sheet: Sheet) -> None:
    (suite,) = junitparser.JUnitXml.fromstring(render_junit(sheet).encode())
    assert suite.tests == len(sheet.cases)
    assert suite.failures == sum(case.status is Status.FAILED for case in sheet.cases)
    assert suite.errors == sum(case.status is Status.ERROR for case in sheet.cases)
    kinds = {junitparser.Failure: Status.FAILED, junitparser.Error: Status.ERROR, junitparser.Skipped: Status.SKIPPED}
    for case, element in zip(sheet.cases, suite, strict=True):
        assert [kinds[type(result)] for result in element.result] == (
            [] if case.status is Status.PASSED else [case.status]
        )


@pytest.mark.parametrize("sheet", [*SHEETS, hostile()])
def test_gitlab_gets_every_field_it_needs(sheet: Sheet) -> None:
    found = json.loads(render_gitlab(sheet))
    assert len(found) == len(sheet.open)
    for entry in found:
        assert set(entry) == {"description", "check_name", "fingerprint", "severity", "location"}
        assert entry["severity"] in ("info", "minor", "major", "critical", "blocker")
        assert isinstance(entry["location"]["path"], str)
        assert isinstance(entry["location"]["lines"]["begin"], int)


COMMAND = re.compile(r"::(error|warning|notice) ((?:\w+=[^,:\n]*,?)+)::([^\n]*)")


def unescaped(text: str) -> str:
    for code, character in (("%0A", "\n"), ("%0D", "\r"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, character)
    return text


def test_github_reads_back_what_was_written() -> None:
    line = render_github(hostile()).splitlines()[0]
    match = COMMAND.fullmatch(line)
    assert match is not None
    values: Mapping[str, str] = dict(part.split("=") for part in match[2].split(","))  # type: ignore[misc]
    assert unescaped(values["file"]) == "a b,c:d.py"
    assert unescaped(match[3]) == 'a % b,\nc: "d" <e>\x07 do: this'


@pytest.mark.parametrize(("count", "lines", "more"), [(10, 10, 0), (11, 10, 2), (30, 10, 21)])
def test_github_gets_at_most_ten_of_a_level_and_is_told_of_the_rest(count: int, lines: int, more: int) -> None:
    text = render_github(hostile(count))
    assert text.count("::error ") == lines
    assert (f"{more} more of this level" in text) == bool(more)


@pytest.mark.parametrize("sheet", SHEETS)
def test_lines_are_json_one_by_one(sheet: Sheet) -> None:
    rows = [json.loads(line) for line in render_jsonl(sheet).splitlines()]
    assert rows[0]["schema"] == "perfdoctor.lines/1"
    assert [row["type"] for row in rows[1:]] == ["case"] * len(sheet.cases) + ["notice"] * len(sheet.notices)


def test_concise_lines_lead_to_the_place() -> None:
    lines = render_concise(diagnosis_sheet(samples.two_findings())).splitlines()
    assert lines[0].startswith("train.py:41: PD03.too-few-workers error: The loop waits 14.2 ms")


def test_a_regression_fails_and_doubt_is_an_error() -> None:
    statuses = {result.verdict: gate_sheet(result, "train.py").cases[0].status for result in RESULTS}
    assert statuses[Verdict.REGRESSION] is Status.FAILED
    assert statuses[Verdict.INCONCLUSIVE] is Status.ERROR
    assert statuses[Verdict.PASS] is Status.PASSED


def test_a_side_that_failed_says_why_in_every_format() -> None:
    sheet = gate_sheet(FAILED, "train.py")
    (suite,) = junitparser.JUnitXml.fromstring(render_junit(sheet).encode())
    assert (suite.errors, suite.failures) == (1, 0)
    (result,) = json.loads(render_sarif(sheet))["runs"][0]["results"]
    assert result["level"] == "error"
    for text in (
        render_junit(sheet),
        result["message"]["text"],
        render_github(sheet),
        render_gitlab(sheet),
        render_concise(sheet),
        render_jsonl(sheet),
    ):
        assert "the job failed with exit code 1" in text
        assert "told to fail" in text


def test_a_script_is_found_in_a_command() -> None:
    assert script_of(["/usr/bin/python", "src/train.py", "--lr", "1"]) == "src/train.py"
    assert script_of(["torchrun", "/home/ann/train.py"]) == "train.py"
    assert script_of([]) == "job"


def pages(markdown: str) -> Pages:
    return Pages(console=str, markdown=lambda: markdown, json=str, html=str, sheet=lambda: SHEETS[0])


def test_github_also_gets_the_whole_report_as_its_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = tmp_path / "summary"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    write(pages("the report\n"), [Output("github", None)])
    assert summary.read_text() == "before\nthe report\n"
    assert "::notice" in capsys.readouterr().out
    write(pages("ä line\n" * 500_000), [Output("github", None)])
    assert SUMMARY_BYTES - 100 < len(summary.read_bytes()) < 1 << 20
    assert "(cut:" in summary.read_text()
