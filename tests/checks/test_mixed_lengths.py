"""Batches of sequences of very different lengths."""

from __future__ import annotations

import pytest
from ill_runs.batch_size import mixed
from perfdoctor.checks.batch_size import CHECK, examine
from samples import LOADER_LINE, healthy, number, with_

from perfdoctor.diagnosis.costs import location
from perfdoctor.diagnosis.findings import Finding, Severity
from perfdoctor.evidence.model import Evidence, Line, Missing, Site


def _found(evidence: Evidence) -> list[Finding]:
    return [one for one in examine(evidence, CHECK.limits).findings if one.id == "PD05.mixed-lengths"]


def test_it_is_an_opportunity_by_what_passes_take_on_sequences_of_the_mean_length() -> None:
    (finding,) = _found(mixed())
    assert finding.severity is Severity.NOTE
    assert (number(finding, "batch_length"), number(finding, "mean_length")) == (180, 60)
    saved_ms = number(finding, "cost_ms")
    assert finding.savings.low_ms == pytest.approx(0.6 * saved_ms) and finding.savings.high_ms == pytest.approx(
        saved_ms
    )


def test_what_padding_alone_takes_is_no_part_of_it() -> None:
    (alone,), (beside,) = _found(mixed(12.0)), _found(mixed(12.0, cut_ms=18.0))
    assert number(beside, "cost_ms") == pytest.approx(number(alone, "cost_ms") / 3)


def test_with_transformers_its_own_sampler_is_the_one_to_ask() -> None:
    (finding,) = _found(with_(mixed(), job__trainer="transformers"))
    assert "group_by_length" in (finding.fix.code or "")


def test_it_lies_where_the_loader_is_made_else_where_a_loop_makes_its_batches() -> None:
    (finding,) = _found(mixed())
    assert finding.location == location(LOADER_LINE)
    pads = Line(Site("train.py", 38, "collate"), "other", 2.0, 0.4, 0.2, 0.05, 0.05, 1.0, shapes=((32, 512),))
    (finding,) = _found(with_(mixed(), loaders=Missing("no loader was seen"), hot_lines=(pads,)))
    assert finding.location == location(pads.site)


@pytest.mark.parametrize("evidence", [mixed(28.0), mixed(31.0), healthy()], ids=["hardly", "slower", "like lengths"])
def test_what_saves_little_is_not_told(evidence: Evidence) -> None:
    assert not _found(evidence)
