"""The bar of the whole job."""

from __future__ import annotations

from dataclasses import fields, replace

import diagnosis_samples as samples
from samples import ANATOMY, with_

from perfdoctor.evidence.model import JobParts
from perfdoctor.report.anatomy import JOB_LOOKS, REST
from perfdoctor.report.content import _observed, job_anatomy_text
from perfdoctor.report.markdown import render_markdown


def test_every_part_of_the_job_has_a_look_of_its_own() -> None:
    assert set(JOB_LOOKS) == {field.name for field in fields(JobParts)} | {REST}
    assert len({look.glyph for look in JOB_LOOKS.values()}) == len(JOB_LOOKS)


def test_parts_are_told_in_seconds_and_small_ones_together() -> None:
    rows = {row.piece.part: (row.time, row.share) for row in job_anatomy_text(ANATOMY)}
    assert rows["imports"] == ("2.50 s", "29 %") and rows["steady"] == ("5.25 s", "61 %")
    assert REST in rows and "start" not in rows  # 50 ms of 8.55 s


def test_the_job_is_a_picture_where_markdown_has_pictures() -> None:
    diagnosis = samples.healthy()
    job = replace(diagnosis, evidence=replace(diagnosis.evidence, anatomy=ANATOMY))
    page = render_markdown(job, next_command="")
    assert page.count("```mermaid\npie showData\n") == 2
    chart = page.partition("title Seconds of the job\n")[2].partition("```")[0]
    assert '    "imports" : 2.5\n' in chart and '    "steady steps" : 5.25\n' in chart


def test_the_heading_says_how_far_the_job_was_observed() -> None:
    assert _observed(ANATOMY) == "8.55 s, until perfdoctor ended it"
    assert _observed(with_(ANATOMY, stopped=False)) == "8.55 s, from its start to its end"
    assert _observed(with_(ANATOMY, stopped=False, complete=False)) == "8.55 s, as far as it was seen"
