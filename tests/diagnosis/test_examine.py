from __future__ import annotations

import dataclasses
from dataclasses import replace

import pytest
from examining import PARTS, RANK, STEP, check_that, examined, finding_of, finds

from perfdoctor.config.rules import Rule
from perfdoctor.config.settings import Config, Selection
from perfdoctor.config.suppressions import Suppression
from perfdoctor.diagnosis.diagnoses import Diagnosis
from perfdoctor.diagnosis.findings import Finding, Measurement, Severity
from perfdoctor.diagnosis.outcomes import Check, Outcome, OutcomeKind, cannot_tell, clear, found, not_applicable
from perfdoctor.evidence.model import Communication, Evidence, Missing, RankTimes

SEEN = Measurement("seen_ms", 1.0, "ms")


def _outcome(diagnosis: Diagnosis, code: str) -> Outcome:
    return next(result.outcome for result in diagnosis.checks if result.code == code)


def _ranks(*step_ms: float) -> tuple[Evidence, ...]:
    """Ranks with steps of these lengths."""
    return tuple(
        dataclasses.replace(RANK, rank=rank, step=dataclasses.replace(STEP, step_ms=ms))
        for rank, ms in enumerate(step_ms)
    )


# ---------------------------------------------------------------------------------------------------------
# Outcomes


def test_a_check_that_raises_is_crashed_and_the_others_go_on() -> None:
    def broken(_: Evidence) -> Outcome:
        raise KeyError("{x}")

    diagnosis = examined(check_that("PD03", broken), finds("PD04", finding_of("PD04.x", 3.0)))
    crashed = _outcome(diagnosis, "PD03")
    assert crashed.kind is OutcomeKind.CRASHED
    assert "KeyError: '{x}'" in crashed.reason
    assert "test_examine.py:" in crashed.reason
    assert [finding.id for finding in diagnosis.ranked] == ["PD04.x"]


def test_a_check_that_returns_no_outcome_is_crashed() -> None:
    diagnosis = examined(check_that("PD03", lambda _: None), check_that("PD04", clear("fine", SEEN)))  # type: ignore[arg-type, return-value]
    assert _outcome(diagnosis, "PD03").kind is OutcomeKind.CRASHED
    assert "NoneType" in _outcome(diagnosis, "PD03").reason
    assert _outcome(diagnosis, "PD04").kind is OutcomeKind.CLEAR


def test_a_crashed_check_is_an_integrity_error() -> None:
    def broken(_: Evidence) -> Outcome:
        raise ValueError

    notes = [note for note in examined(check_that("PD03", broken)).integrity if note.code == "PD94"]
    assert [(note.name, note.severity) for note in notes] == [("check-crashed", Severity.ERROR)]
    assert "PD03 name-PD03" in notes[0].message
    assert not [n for n in examined(check_that("PD03", not_applicable("no"))).integrity if n.code == "PD94"]


def test_a_crash_on_one_rank_shows_although_others_have_findings() -> None:
    def broken_on_one(evidence: Evidence) -> Outcome:
        if evidence.rank == 1:
            raise ZeroDivisionError
        return found(finding_of("PD03.x", 1.0))

    diagnosis = examined(check_that("PD03", broken_on_one), ranks=_ranks(30, 30))
    assert _outcome(diagnosis, "PD03").kind is OutcomeKind.CRASHED
    assert diagnosis.ranked == ()


@pytest.mark.parametrize("said", [clear("fine", SEEN), not_applicable("no loader"), cannot_tell("no step")])
def test_what_a_check_says_is_kept(said: Outcome) -> None:
    assert _outcome(examined(check_that("PD03", said)), "PD03") == said


def test_checks_stand_in_the_order_of_their_codes() -> None:
    late, early = finds("PD42", finding_of("PD42.x", 1.0)), check_that("PD03", clear("fine", SEEN))
    assert [result.code for result in examined(late, early).checks] == ["PD03", "PD42"]


@pytest.mark.parametrize(
    ("low", "high", "kind"),
    [
        (1.5, 3.0, "ill"),  # of 30 ms: 1.05x even at worst
        (1.3, 3.0, "opportunity"),
        (0.0, 2.9, "opportunity"),
        (0.0, 2.8, ""),  # 1.05x at best, 1.02x in the middle
        (0.0, 0.0, "opportunity"),  # no saving could be predicted
    ],
)
def test_what_is_surely_worth_a_fix_alarms_and_what_may_be_is_an_opportunity(
    low: float, high: float, kind: str
) -> None:
    diagnosis = examined(finds("PD03", finding_of("PD03.x", 6.0, low, high)))
    assert [len(diagnosis.ills), len(diagnosis.opportunities)] == [kind == "ill", kind == "opportunity"]
    assert (diagnosis.checks[0].outcome.kind is OutcomeKind.CLEAR) == (not kind)


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [
        (1.4, 1.6, True),
        (1.1, 2.1, False),  # 1.05x in the middle, less in the lower quarter
        (1.1, 2.6, True),
        (0.0, 5.6, False),
        (0.0, 5.8, True),  # 1.10x in the middle
        (0.0, 0.0, True),
    ],
)
def test_where_nothing_is_wrong_the_lower_part_of_the_gain_must_be_worth_it(
    low: float, high: float, told: bool
) -> None:
    note = replace(finding_of("PD02.x", 6.0, low, high), severity=Severity.NOTE)
    assert len(examined(finds("PD02", note)).opportunities) == told


def test_a_note_comes_last_however_much_it_promises() -> None:
    note = replace(finding_of("PD05.x", 9.0), severity=Severity.NOTE)
    diagnosis = examined(finds("PD05", note), finds("PD03", finding_of("PD03.x", 2.0), finding_of("PD03.y", 3.0)))
    assert [finding.id for finding in diagnosis.ranked] == ["PD03.y", "PD03.x", "PD05.x"]


# ---------------------------------------------------------------------------------------------------------
# Configuration


def test_checks_that_are_not_selected_are_left_out() -> None:
    config = Config(selections=(Selection(select=("PD03", "PD05"), ignore=("PD05",)),))
    ran: list[str] = []

    def noticed(evidence: Evidence) -> Outcome:
        ran.append("PD05")
        return clear("fine", SEEN)

    diagnosis = examined(check_that("PD03", clear("fine", SEEN)), check_that("PD05", noticed), config=config)
    assert [result.code for result in diagnosis.checks] == ["PD03"]
    assert ran == []


def test_a_suppressed_finding_is_kept_apart_with_its_reason_and_saves_nothing() -> None:
    config = Config(suppressions=(Suppression("PD03.x", "known", origin="suppress[1]"),))
    check = finds("PD03", finding_of("PD03.x", 4.0), finding_of("PD03.y", 2.0))
    diagnosis = examined(check, config=config)
    result = next(r for r in diagnosis.checks if r.code == "PD03")
    assert [(s.finding.id, s.reason) for s in result.suppressed] == [("PD03.x", "known")]
    assert [finding.id for finding in diagnosis.ranked] == ["PD03.y"]
    assert diagnosis.combined is not None
    assert diagnosis.combined.high_ms == pytest.approx(2.0)


def test_a_check_with_all_findings_suppressed_is_clear_and_says_why() -> None:
    diagnosis = examined(finds("PD03", finding_of("PD03.x", 4.0)), comment=Suppression("PD03", "as planned"))
    outcome = _outcome(diagnosis, "PD03")
    assert outcome.kind is OutcomeKind.CLEAR
    assert "suppressed" in outcome.reason
    assert diagnosis.combined is None


def test_the_level_of_a_rule_replaces_the_measured_one() -> None:
    config = Config(rules=(Rule("PD03", level="error"),))
    (finding,) = examined(finds("PD03", finding_of("PD03.x", 4.0)), config=config).ranked
    assert finding.severity is Severity.ERROR


def test_a_check_gets_its_limits() -> None:
    def judge(_: Evidence, limits: float) -> Outcome:
        return clear("fine", Measurement("limit", limits, "count"))

    check = Check("PD03", "etl", "loading", 1.0, judge)
    assert _outcome(examined((check, 7.0)), "PD03").measurements[0].value == 7.0


# ---------------------------------------------------------------------------------------------------------
# Ranks


@pytest.mark.parametrize(
    ("ill", "total", "note"),
    [
        ({0, 1, 2, 3}, 4, "all ranks"),
        ({3}, 4, "rank 3 only"),
        ({0, 2}, 4, "ranks 0 and 2"),
        ({0}, 1, ""),
    ],
)
def test_a_finding_says_which_ranks_have_it(ill: set[int], total: int, note: str) -> None:
    def some(evidence: Evidence) -> Outcome:
        return found(finding_of("PD03.x", 3.0)) if evidence.rank in ill else clear("fine", SEEN)

    (finding,) = examined(check_that("PD03", some), ranks=_ranks(*[30.0] * total)).ranked
    assert finding.rank_note == note


def test_the_costliest_rank_speaks_for_all() -> None:
    def growing(evidence: Evidence) -> Outcome:
        return found(finding_of("PD03.x", 1.0 + evidence.rank))

    (finding,) = examined(check_that("PD03", growing), ranks=_ranks(30, 30, 30)).ranked
    assert finding.savings.ceiling_ms == 3.0


def _waiting(*wait_ms: float) -> tuple[Evidence, ...]:
    """Ranks with steps as long as each other's, of which they wait so much for others."""
    compared = tuple(
        RankTimes(rank, dataclasses.replace(PARTS, communication=ms), 20.0, 0.1, 0.5, 32.0, 4096.0)
        for rank, ms in enumerate(wait_ms)
    )
    late = min(compared, key=lambda times: times.parts.communication).rank
    together = Communication(150, compared, late, 8.0, 8.0, 8.0, min(wait_ms), (), None)
    return tuple(dataclasses.replace(evidence, communication=together) for evidence in _ranks(*[30.0] * len(wait_ms)))


def test_the_rank_that_the_others_wait_for_is_judged_and_speaks() -> None:
    def growing(evidence: Evidence) -> Outcome:
        return found(finding_of("PD03.x", 9.0 - evidence.rank))

    diagnosis = examined(check_that("PD03", growing), ranks=_waiting(9.0, 1.0))
    assert diagnosis.evidence.rank == 1
    assert [finding.savings.ceiling_ms for finding in diagnosis.ranked] == [8.0]


@pytest.mark.parametrize(("costs", "left"), [(6.0, []), (8.0, []), (12.0, [4.0])])
def test_what_a_rank_loses_while_it_would_only_wait_costs_the_job_nothing(costs: float, left: list[float]) -> None:
    def on_the_other(evidence: Evidence) -> Outcome:
        return found(finding_of("PD03.x", costs)) if evidence.rank == 0 else clear("fine", SEEN)

    diagnosis = examined(check_that("PD03", on_the_other), ranks=_waiting(9.0, 1.0))
    assert [finding.savings.high_ms for finding in diagnosis.ranked] == [pytest.approx(ms) for ms in left]
    assert [finding.savings.claimed for finding in diagnosis.ranked] == [0.0] * len(left)
    assert left or diagnosis.checks[0].outcome.kind is OutcomeKind.CLEAR


def test_without_findings_the_slowest_rank_speaks() -> None:
    def named(evidence: Evidence) -> Outcome:
        return clear("rank {rank}", Measurement("rank", evidence.rank, "count"))

    diagnosis = examined(check_that("PD03", named), ranks=_ranks(30, 50, 40))
    assert diagnosis.evidence.rank == 1
    assert _outcome(diagnosis, "PD03").measurements[0].value == 1


def test_two_lines_of_one_function_stay_two_findings() -> None:
    check = finds("PD04", finding_of("PD04.x", 3.0, line=10), finding_of("PD04.x", 2.0, line=20))
    for ranks, note in ((_ranks(30), ""), (_ranks(30, 30), "all ranks")):
        diagnosis = examined(check, ranks=ranks)
        assert [f.location.line for f in diagnosis.ranked if f.location] == [10, 20]
        assert {f.rank_note for f in diagnosis.ranked} == {note}


def test_a_run_without_a_step_is_judged_without_billing() -> None:
    nobody = dataclasses.replace(RANK, step=Missing("no step was seen"))
    diagnosis = examined(check_that("PD03", cannot_tell("no step")), ranks=(nobody,))
    assert diagnosis.combined is None
    assert diagnosis.ranked == ()
    assert "PD90" in [note.code for note in diagnosis.integrity]


# ---------------------------------------------------------------------------------------------------------
# Ranking and billing


def test_examining_twice_gives_the_same() -> None:
    check = finds("PD03", finding_of("PD03.a", 20.0), finding_of("PD03.b", 6.0, line=2))
    assert examined(check, ranks=_ranks(30, 40)) == examined(check, ranks=_ranks(30, 40))


@pytest.mark.parametrize(
    ("cause_ms", "left_ms", "severity"), [(4.0, 11.0, Severity.WARNING), (9.0, 6.0, Severity.NOTE)]
)
def test_a_cause_is_billed_before_a_fix_that_helps_against_anything(
    cause_ms: float, left_ms: float, severity: Severity
) -> None:
    """A larger batch also makes a gradient cheaper that should not be as large as it is."""
    larger_batch = finding_of("PD05.batch-too-small", 14.0)
    larger_batch = replace(larger_batch, savings=replace(larger_batch.savings, general=True))
    diagnosis = examined(finds("PD05", larger_batch), finds("PD09", finding_of("PD09.layer", cause_ms)))
    billed = {finding.id: finding for finding in diagnosis.ranked}
    assert billed["PD09.layer"].savings.ceiling_ms == cause_ms
    assert billed["PD05.batch-too-small"].savings.ceiling_ms == pytest.approx(left_ms)
    assert billed["PD05.batch-too-small"].severity is severity


def test_a_cause_that_is_a_note_makes_no_note_of_an_alarm() -> None:
    """Else nothing would be alarmed about, however much could be saved."""
    larger_batch = finding_of("PD05.batch-too-small", 14.0)
    larger_batch = replace(larger_batch, savings=replace(larger_batch.savings, general=True))
    update = replace(finding_of("PD10.slow-update", 9.0), severity=Severity.NOTE)
    billed = {f.id: f for f in examined(finds("PD05", larger_batch), finds("PD10", update)).ranked}
    assert billed["PD05.batch-too-small"].savings.ceiling_ms == 14.0
    assert billed["PD05.batch-too-small"].severity is Severity.WARNING


@pytest.mark.parametrize(("loop_ms", "severity"), [(14.0, Severity.NOTE), (9.0, Severity.WARNING)])
def test_growth_is_billed_before_what_lies_where_it_grew(loop_ms: float, severity: Severity) -> None:
    """A list that is gone through in every step makes a loop over it look dear by itself."""
    grown = finding_of("PD15.growing-container", 10.0)
    grown = replace(grown, savings=replace(grown.savings, first=True))
    step = replace(finding_of("PD10.loop", loop_ms), severity=Severity.WARNING)
    billed = {f.id: f for f in examined(finds("PD15", grown), finds("PD10", step)).ranked}
    assert billed["PD15.growing-container"].savings.ceiling_ms == 10.0
    assert billed["PD10.loop"].savings.claimed > 0 and billed["PD10.loop"].severity is severity


def _opportunity(id: str, ms: float) -> Finding:
    return replace(finding_of(id, ms), severity=Severity.NOTE)


def test_opportunities_are_other_ways_to_the_same_time() -> None:
    """Each is told as it would be measured when tried alone."""
    found = examined(finds("PD05", _opportunity("PD05.a", 12.0)), finds("PD08", _opportunity("PD08.b", 9.0)))
    assert [(one.id, one.savings.ceiling_ms) for one in found.opportunities] == [("PD05.a", 12.0), ("PD08.b", 9.0)]


@pytest.mark.parametrize(("ill_ms", "left_ms"), [(10.0, 5.0), (14.0, 0.0)])
def test_opportunities_act_on_what_ills_leave(ill_ms: float, left_ms: float) -> None:
    """And are not told where that is nothing worth a reader's time."""
    found = examined(finds("PD08", _opportunity("PD08.b", 9.0)), finds("PD10", finding_of("PD10.ill", ill_ms)))
    assert [one.savings.ceiling_ms for one in found.opportunities] == [pytest.approx(ms) for ms in (left_ms,) if ms]
    if not left_ms:
        assert "beside the ills" in _outcome(found, "PD08").reason


@pytest.mark.parametrize(("ill_ms", "told"), [(10.0, True), (20.0, False)])
def test_an_opportunity_without_a_number_stays_while_ills_leave_anything(ill_ms: float, told: bool) -> None:
    unknown = replace(finding_of("PD18.breaks", 15.0, 0.0, 0.0), severity=Severity.NOTE)
    found = examined(finds("PD18", unknown), finds("PD10", finding_of("PD10.ill", ill_ms)))
    assert bool(found.opportunities) is told


def test_a_cause_of_which_little_is_left_keeps_its_severity() -> None:
    """It is a cause all the same: only a fix that helps against anything becomes a note."""
    larger, smaller = finding_of("PD08.larger", 14.0), finding_of("PD09.smaller", 13.0)
    billed = {f.id: f for f in examined(finds("PD08", larger), finds("PD09", smaller)).ranked}
    assert billed["PD09.smaller"].savings.ceiling_ms == pytest.approx(1.0)
    assert billed["PD09.smaller"].severity is smaller.severity is Severity.WARNING
