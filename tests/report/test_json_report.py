from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import diagnosis_samples as samples
import jsonschema
import pytest
from samples import ANATOMY

from perfdoctor.diagnosis.diagnoses import CheckResult, Diagnosis
from perfdoctor.diagnosis.findings import Measurement, Part
from perfdoctor.diagnosis.outcomes import clear
from perfdoctor.evidence.model import Line, Missing, Site
from perfdoctor.report.jsonreport import SCHEMA, load_schema, render_json


def read(diagnosis: Diagnosis) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(render_json(diagnosis))
    return parsed


def closed(schema: Any) -> Any:
    """The schema with no room for a property that it does not describe."""
    if isinstance(schema, dict):
        for value in schema.values():
            closed(value)
        if "properties" in schema and "allOf" not in schema and "suppressed_because" not in schema:
            schema.setdefault("additionalProperties", False)
    elif isinstance(schema, list):
        for value in schema:
            closed(value)
    return schema


def test_the_schema_is_a_schema() -> None:
    schema = load_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]["schema"]["enum"] == [SCHEMA]  # type: ignore[index, call-overload]


@pytest.mark.parametrize("make", samples.ALL, ids=lambda make: make.__name__)
def test_every_report_meets_the_schema(make: Callable[[], Diagnosis]) -> None:
    jsonschema.Draft202012Validator(load_schema()).validate(read(make()))


def test_every_property_is_described_in_the_schema() -> None:
    document = read(samples.two_findings())
    schema = closed(copy.deepcopy(load_schema()))
    jsonschema.Draft202012Validator(schema).validate(document)


def test_a_finding_keeps_all_it_says() -> None:
    check = read(samples.two_findings())["checks"][0]
    finding = check["findings"][0]
    assert (check["code"], check["outcome"]) == ("PD03", "found")
    assert finding["id"] == "PD03.too-few-workers"
    assert finding["message"] == "the loop waits 14.2 ms per step for the next batch, 57 % of the step"
    assert finding["location"] == {"file": "train.py", "line": 41, "function": "main"}
    assert "**{'batch_size': 32}," in finding["fix"]["code"]
    assert finding["fix"]["remedies"] == ["loader-workers"]
    assert finding["savings"]["part"] == "input_wait"
    assert finding["savings"]["low_ms"] == 11.2
    assert finding["fingerprint"] == samples.WORKERS.fingerprint
    assert finding["evidence"][-1] == {
        "name": "num_workers",
        "value": 1,
        "unit": "count",
        "label": "num workers",
    }


def test_a_finding_says_what_it_comes_to_in_the_observed_job() -> None:
    diagnosis = samples.two_findings()
    job = ANATOMY
    seen = replace(diagnosis, evidence=replace(diagnosis.evidence, anatomy=job))
    found = read(seen)["checks"][0]["findings"][0]
    low, high = found["savings"]["low_ms"] * job.steps, found["savings"]["high_ms"] * job.steps
    assert found["job_savings"] == pytest.approx({"low_ms": low, "high_ms": high, "share": high / job.wall_ms})
    short = replace(diagnosis, evidence=replace(diagnosis.evidence, anatomy=replace(job, steps=10**9)))
    assert read(short)["checks"][0]["findings"][0]["job_savings"]["share"] == 1.0  # no more than was observed


def test_an_unseen_job_has_no_savings_but_a_reason() -> None:
    diagnosis = samples.two_findings()
    unseen = replace(diagnosis, evidence=replace(diagnosis.evidence, anatomy=Missing("it was not timed")))
    assert read(unseen)["checks"][0]["findings"][0]["job_savings"]["missing"] == "it was not timed"


def test_the_anatomy_has_every_part() -> None:
    anatomy = read(samples.two_findings())["anatomy"]
    assert anatomy["step_ms"] == 24.8
    assert anatomy["parts"] == samples.STEP.parts.as_dict()


def test_what_is_missing_says_why_and_how_to_get_it() -> None:
    document = read(samples.no_step())
    assert document["anatomy"] == {
        "missing": "the job ended before its second optimizer step",
        "remedy": "run it for at least 20 steps",
    }
    assert document["integrity"]["contention"]["missing"]
    assert document["integrity"]["job_end"]["exit_code"] == 1
    assert document["combined"] is None


def test_suppressed_findings_stay_with_their_reason() -> None:
    check = read(samples.troubled())["checks"][1]
    assert check["outcome"] == "clear"
    assert check["suppressed"][0]["id"] == "PD04.explicit-collect"
    assert check["suppressed"][0]["suppressed_because"] == "needed for the leak test | see #12"


def test_numbers_that_are_not_finite_become_null() -> None:
    odd = clear("{a} {b}", Measurement("a", float("nan"), "ms"), Measurement("b", float("inf"), "ms"))
    document = read(replace(samples.healthy(), checks=(CheckResult("PD01", "x", "x", odd),)))
    assert [m["value"] for m in document["checks"][0]["measurements"]] == [None, None]
    assert document["checks"][0]["reason"] == "unknown unknown"


def test_undecodable_names_can_be_written() -> None:
    job = replace(samples.EVIDENCE.job, cwd="/home/\udcff")
    diagnosis = replace(samples.healthy(), evidence=replace(samples.EVIDENCE, job=job))
    assert "/home/?" in render_json(diagnosis).encode("utf-8").decode("utf-8")


def test_the_same_diagnosis_gives_the_same_bytes_whatever_the_order_of_sets() -> None:
    job = samples.EVIDENCE.job
    turned = replace(job, frameworks=job.frameworks[::-1], environment=job.environment[::-1])
    diagnosis = samples.two_findings()
    other = replace(diagnosis, evidence=replace(diagnosis.evidence, job=turned))
    assert render_json(diagnosis) == render_json(other)


def test_json_needs_neither_rich_nor_jinja() -> None:
    script = (
        "import sys, perfdoctor.report.jsonreport, perfdoctor.report.anatomy, perfdoctor.report.live;"
        "import perfdoctor.report.content, perfdoctor.report.explain, perfdoctor.report.markdown;"
        "print([m for m in ('rich', 'jinja2', 'torch', 'numpy') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_the_schema_knows_every_part_of_the_step() -> None:
    savings = load_schema()["$defs"]["Savings"]
    assert savings["properties"]["part"]["enum"] == [part.value for part in Part]


def test_hot_lines_say_where_and_how_much() -> None:
    diagnosis = samples.ALL[0]()
    line = Line(Site("train.py", 42, "main", "torch/_tensor.py:backward"), "backward", 60.0, 14.0, 13.0, 1.0, 1.0, 2.0)
    several = replace(diagnosis, evidence=replace(diagnosis.evidence, hot_lines=(line,) * 12))
    report = read(several)
    jsonschema.Draft202012Validator(closed(copy.deepcopy(load_schema()))).validate(report)
    assert len(report["hot_lines"]) == 10
    assert report["hot_lines"][0] == {
        "location": {"file": "train.py", "line": 42, "function": "main"},
        "part": "backward",
        "ms_per_step": 14.0,
        "ops_per_step": 60.0,
        "runs_per_step": 2.0,
    }
    unseen = replace(diagnosis, evidence=replace(diagnosis.evidence, hot_lines=Missing("it was too short")))
    assert read(unseen)["hot_lines"]["missing"] == "it was too short"
