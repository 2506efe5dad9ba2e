"""Sequences that are padded to a length which none of their batch has."""

from __future__ import annotations

from typing import Any

import pytest
from ill_runs.batch_size import padded
from perfdoctor.checks.batch_size import CHECK, examine
from samples import LOADER_LINE, ids, number, only, with_

from perfdoctor.diagnosis.costs import location
from perfdoctor.diagnosis.findings import Finding, Severity
from perfdoctor.evidence.model import CodeLine, Evidence, Site, TrainerOption


def _found(evidence: Evidence) -> Finding:
    (finding,) = [one for one in examine(evidence, CHECK.limits).findings if one.id == "PD05.padded-batches"]
    return finding


def test_where_padding_is_asked_of_a_library_that_line_is_named() -> None:
    asked = TrainerOption("pad_to_multiple_of", Site("data.py", 75, "make_collator"))
    finding = only(examine(with_(padded(), job__options=(asked,)), CHECK.limits))
    assert finding.location is not None and finding.location.line == 75


def test_it_is_told_by_what_passes_take_without_it() -> None:
    finding = _found(padded())
    assert finding.severity is Severity.WARNING
    assert (number(finding, "length"), number(finding, "needed")) == (256, 90)
    assert "pad_sequence" in (finding.fix.code or "")
    # A third of forward and backward.
    passes_ms = number(finding, "cost_ms")
    assert finding.savings.low_ms == pytest.approx(0.7 * passes_ms)
    assert finding.savings.high_ms == pytest.approx(1.1 * passes_ms)


def test_with_transformers_the_tokenizer_is_the_one_to_change() -> None:
    finding = _found(with_(padded(), job__trainer="transformers"))
    assert "DataCollatorWithPadding" in (finding.fix.code or "")


@pytest.mark.parametrize(
    "changes",
    [{"cut_ms": 29.0}, {"cut_ms": 31.0}, {"length": 0, "needed": 0}],
    ids=["hardly faster", "slower", "nothing cut off"],
)
def test_padding_that_costs_nothing_is_none(changes: dict[str, Any]) -> None:
    assert "PD05.padded-batches" not in ids(examine(padded(**changes), CHECK.limits))


def test_it_comes_beside_what_is_told_of_the_batch() -> None:
    assert only(examine(padded(), CHECK.limits)).id == "PD05.padded-batches"


def test_it_lies_where_the_users_code_makes_a_batch_else_where_the_loader_is_made() -> None:
    assert _found(padded()).location == location(LOADER_LINE)
    own = Site("data.py", 12, "collate")
    assert _found(with_(padded(), loader__maker=own)).location == location(own)


def test_of_the_function_that_pads_the_dearest_line_is_named() -> None:
    own = Site("data.py", 12, "collate")
    lines = tuple(
        CodeLine(Site("data.py", at, "collate"), "input_wait", True, ms, 0.1) for at, ms in ((14, 1.0), (16, 2.0))
    )
    elsewhere = CodeLine(Site("data.py", 40, "__getitem__"), "input_wait", True, 9.0, 0.5)
    seen = with_(padded(), loader__maker=own, code_lines=(*lines, elsewhere))
    assert _found(seen).location == location(Site("data.py", 16, "collate"))


def test_the_line_that_says_to_what_length_comes_before_the_dearest() -> None:
    own, says = Site("data.py", 12, "collate"), Site("data.py", 13, "collate")
    line = CodeLine(Site("data.py", 16, "collate"), "input_wait", True, 2.0, 0.1)
    seen = with_(padded(), loader__maker=own, loader__padder=says, code_lines=(line,))
    assert _found(seen).location == location(says)
