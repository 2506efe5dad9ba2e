from __future__ import annotations

from typing import Any

import pytest
from ill_runs.gc import GC_LINE, automatic_collections, explicit_collections
from ills import ILL
from perfdoctor.checks.gc import CHECK
from samples import asked, healthy, ids, is_clear, number, with_

from perfdoctor.diagnosis.findings import Location, Part, Severity
from perfdoctor.diagnosis.outcomes import OutcomeKind
from perfdoctor.evidence.model import CollectSite, Missing, Site

_examined, _found = asked(CHECK)


def test_the_number_of_objects_alone_never_alarms() -> None:
    outcome = _examined(with_(healthy(), gc__tracked_objects=50_000_000))
    assert is_clear(outcome)
    assert number(outcome, "tracked_objects") == 50_000_000


def test_objects_that_were_not_counted_are_left_out() -> None:
    outcome = _examined(with_(healthy(), gc__tracked_objects=Missing("the process ended")))
    assert is_clear(outcome)
    assert "tracked_objects" not in [m.name for m in outcome.measurements]


def test_full_collections_that_cost_nothing_are_fine() -> None:
    """A collection in every step, frozen to nothing, is no finding: no finding from a count alone."""
    assert is_clear(_examined(with_(healthy(), gc__per_step=(1.0, 1.0, 1.0))))


@pytest.mark.parametrize("part", ["step", "gc"])
def test_without_steps_or_collector_nothing_is_claimed(part: str) -> None:
    outcome = _examined(with_(healthy(), **{part: Missing("it was not seen")}))
    assert outcome.kind is OutcomeKind.CANNOT_TELL
    assert "it was not seen" in outcome.reason


# ---------------------------------------------------------------------------------------------------------
# Explicit collections


def test_an_explicit_collection_is_found_with_its_line() -> None:
    finding = _found(ILL["PD04.explicit-collect"])
    assert finding.id == "PD04.explicit-collect"
    assert finding.location == Location(GC_LINE.file, GC_LINE.line, GC_LINE.function)
    assert finding.savings.part is Part.GC
    assert finding.savings.ceiling_ms == pytest.approx(20.0)
    assert 0.8 * 20.0 < finding.savings.low_ms < finding.savings.high_ms <= 20.0
    assert "freeze" not in finding.fix.text + finding.fix.code  # measured to slow loops down


@pytest.mark.parametrize(
    ("trainer", "word"),
    [("", "for epoch"), ("lightning", "on_train_epoch_end"), ("transformers", "TrainerCallback")],
)
def test_a_collection_moves_to_where_the_trainer_ends_an_epoch(trainer: str, word: str) -> None:
    assert word in _found(with_(ILL["PD04.explicit-collect"], job__trainer=trainer)).fix.code


@pytest.mark.parametrize(
    ("share", "severity"),
    [(0.049, None), (0.051, Severity.WARNING), (0.099, Severity.WARNING), (0.101, Severity.ERROR)],
)
def test_explicit_collections_count_by_their_share(share: float, severity: Severity | None) -> None:
    outcome = _examined(explicit_collections(share))
    assert [finding.severity for finding in outcome.findings] == ([severity] if severity else [])


def test_each_line_that_collects_is_a_finding_of_its_own() -> None:
    other = Site("train.py", 90, "evaluate")
    outcome = _examined(explicit_collections(0.5, GC_LINE, other))
    assert [f.location.line for f in outcome.findings if f.location] == [31, 90]


def test_lines_that_cost_little_each_and_together_too_much_are_found() -> None:
    lines = tuple(Site("train.py", line, "main") for line in (10, 20, 30))
    outcome = _examined(explicit_collections(0.12, *lines))
    assert ids(outcome) == ["PD04.explicit-collect"] * 3
    assert {finding.severity for finding in outcome.findings} == {Severity.NOTE}
    assert sum(finding.savings.share for finding in outcome.findings) == pytest.approx(0.12)


def test_a_line_that_costs_next_to_nothing_is_not_named_beside_the_culprit() -> None:
    evidence = explicit_collections(0.5)
    rare = CollectSite(Site("train.py", 99, "main"), 0.001, 0.1, 20.0)
    assert len(_examined(with_(evidence, gc__explicit=(*evidence.gc.explicit, rare))).findings) == 1  # type: ignore[union-attr]


def test_a_collection_from_no_known_line_has_no_location() -> None:
    assert _found(explicit_collections(0.5, Site("", 0, ""))).location is None


# ---------------------------------------------------------------------------------------------------------
# The automatic collector


def test_automatic_collections_are_found_without_a_line() -> None:
    finding = _found(ILL["PD04.automatic-collections"])
    assert finding.id == "PD04.automatic-collections"
    assert finding.severity is Severity.ERROR
    assert finding.location is None
    assert "set_threshold" in finding.fix.code


@pytest.mark.parametrize(("share", "count"), [(0.049, 0), (0.051, 1)])
def test_automatic_collections_count_from_five_per_cent_on(share: float, count: int) -> None:
    assert len(_examined(automatic_collections(share)).findings) == count


def test_several_ranks_are_told_to_collect_together() -> None:
    finding = _found(automatic_collections(ranks=8))
    assert "every rank" in finding.fix.code
    assert "set_threshold" not in finding.fix.code


@pytest.mark.parametrize(("automatic_ms", "names"), [(5.0, 2), (0.2, 1)])
def test_both_kinds_may_cost(automatic_ms: float, names: int) -> None:
    evidence: Any = explicit_collections(0.5)
    both = with_(evidence, gc__ms_per_step=20.0 + automatic_ms, gc__automatic_ms_per_step=automatic_ms)
    assert len(set(ids(_examined(both)))) == names


@pytest.mark.parametrize(("irregular_ms", "count"), [(3.0, 1), (0.5, 0), (0.0, 0)])
def test_collections_in_every_tenth_step_are_told_beside_the_steady_step(irregular_ms: float, count: int) -> None:
    rare = CollectSite(GC_LINE, 0.1, 3.0, 30.0, is_rare=True)
    evidence = with_(explicit_collections(0.01), gc__explicit=(rare,), step__irregular_ms=irregular_ms)
    found = _examined(evidence).findings
    assert len(found) == count
    for finding in found:
        assert finding.id == "PD04.explicit-collect" and finding.savings.part is Part.EPOCH
        assert "all of it in one step of {every}" in finding.message and number(finding, "every") == 10
