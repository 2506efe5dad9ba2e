"""The bar of the whole job."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import diagnosis_samples as samples
from diagnosis_samples import WORKERS, two_findings, with_findings
from samples import ANATOMY, with_

from perfdoctor.diagnosis.findings import Savings
from perfdoctor.evidence.model import JobAnatomy, JobParts, Missing, WholeJob
from perfdoctor.report.anatomy import JOB_LOOKS, REST
from perfdoctor.report.content import finding_text
from perfdoctor.report.job import job_anatomy_text, job_heading, whole_job_sentence
from perfdoctor.report.jsonreport import document
from perfdoctor.report.markdown import render_markdown


def test_every_part_of_the_job_has_a_look_of_its_own() -> None:
    assert set(JOB_LOOKS) == {field.name for field in fields(JobParts)} | {REST}
    assert len({look.glyph for look in JOB_LOOKS.values()}) == len(JOB_LOOKS)


def test_parts_are_told_in_seconds_and_small_ones_together() -> None:
    rows = {row.piece.part: (row.time, row.share) for row in job_anatomy_text(ANATOMY)}
    assert rows["imports"] == ("2.50 s", "29 %") and rows["steady"] == ("5.25 s", "61 %")
    assert REST in rows and "start" not in rows  # 50 ms of 8.55 s


def test_the_heading_says_how_far_the_job_was_observed() -> None:
    assert job_heading(ANATOMY) == "8.55 s, until perfdoctor ended it"
    assert job_heading(with_(ANATOMY, stopped=False)) == "8.55 s, from its start to its end"
    assert job_heading(with_(ANATOMY, stopped=False, complete=False)) == "8.55 s, as far as it was seen"


def _whole(**changes: Any) -> JobAnatomy:
    """Of 12,000 steps, 211 of which were seen."""
    parts = replace(ANATOMY.parts, steady=15_000_000.0, observing=0.0)
    whole = WholeJob(parts.total, parts, 12_000, "loops", False, ("evaluation", "checkpoints"), ())
    return with_(ANATOMY, whole=replace(whole, **changes))


def test_a_job_that_was_ended_is_told_as_a_whole_and_marked_so() -> None:
    job = _whole()
    assert job_heading(job) == "about 4 h 10 min, extrapolated from 211 of 12,000 steps"
    rows = {row.piece.part: (row.time, row.share) for row in job_anatomy_text(job)}
    assert rows["steady"] == ("4 h 10 min", "100 %") and "observing" not in rows
    assert whole_job_sentence(job) == (
        "Perfdoctor ended the job after 8.55 s; its `for` loops say how many steps it takes. "
        "No evaluation and no checkpoint was seen: any that there are come on top."
    )


def test_what_a_trainer_may_end_early_takes_at_most_so_long() -> None:
    job = _whole(by="lightning", at_most=True, unseen=(), once=("evaluation",))
    assert job_heading(job).startswith("at most 4 h 10 min, ")
    assert whole_job_sentence(job) == (
        "Perfdoctor ended the job after 8.55 s; Lightning says how many steps it takes. "
        "Only one evaluation was seen, and counts once. It stops earlier where nothing gets better."
    )


def test_steps_that_drift_are_told_for_what_they_are() -> None:
    drifting = with_(ANATOMY, whole=Missing("its steps do not stay as long as they are", code="drifts"))
    assert whole_job_sentence(drifting) == (
        "The whole job's time is not extrapolated: its steps do not stay as long as they are."
    )
    assert whole_job_sentence(ANATOMY) == ""


def test_which_of_several_phases_is_judged_is_told() -> None:
    others = with_(ANATOMY, parts__other_phases=7_700.0)
    assert whole_job_sentence(others) == (
        "Of the job's phases of training the longest is judged; 7.70 s went into others."
    )
    assert whole_job_sentence(with_(_whole(), parts__other_phases=7_700.0)).startswith(
        "Of the job's phases of training the longest is judged; 7.70 s went into others. Perfdoctor ended the job"
    )


def test_what_trains_on_afterwards_was_not_seen() -> None:
    why = Missing("after this loop it trains on at train.py:30", "watch all of it with --to-end", code="trains-on")
    assert whole_job_sentence(with_(ANATOMY, whole=why)) == (
        "Perfdoctor ended the job early: after this loop it trains on at train.py:30, which was not seen. "
        "--to-end watches the whole job."
    )


def test_savings_are_told_of_the_whole_job_and_of_what_was_seen() -> None:
    finding = replace(WORKERS, savings=Savings(1.0, 0.5, 1.0, 0.1, ""))
    seen = with_findings(two_findings(), finding)
    seen = replace(seen, evidence=with_(seen.evidence, anatomy=ANATOMY))
    told = replace(seen, evidence=with_(seen.evidence, anatomy=_whole()))
    assert finding_text(1, finding, seen).of_job == "110 to 210 ms of the 8.55 s of the job that were observed"
    assert finding_text(1, finding, told).of_job == "6 to 12 s of the whole job's time of about 4 h 10 min"
    (reported,) = [one for check in document(told)["checks"] for one in check["findings"]]  # type: ignore[union-attr,index,call-overload]
    assert reported["whole_job_savings"]["high_ms"] == 12_000.0 and reported["job_savings"]["high_ms"] == 211.0  # type: ignore[index,call-overload]


def test_the_job_is_a_picture_where_markdown_has_pictures() -> None:
    diagnosis = samples.healthy()
    job = replace(diagnosis, evidence=replace(diagnosis.evidence, anatomy=ANATOMY))
    page = render_markdown(job, next_command="")
    assert page.count("```mermaid\npie showData\n") == 2
    chart = page.partition("title Seconds of the job\n")[2].partition("```")[0]
    assert '    "imports" : 2.5\n' in chart and '    "steady steps" : 5.25\n' in chart
