"""No millisecond is billed twice, and what is told first saves the most."""

from __future__ import annotations

import dataclasses
import math

import pytest
from examining import STEP, examined, finding_of, finds

from perfdoctor.diagnosis import calibration
from perfdoctor.diagnosis.findings import Finding, Part


def test_findings_are_ranked_by_the_middle_of_what_they_save() -> None:
    diagnosis = examined(
        finds("PD03", finding_of("PD03.sure", 3.0, low=2.5)),
        finds("PD04", finding_of("PD04.vague", 4.0, low=0.0)),
        finds("PD07", finding_of("PD07.large", 7.0, low=5.0)),
    )
    assert [finding.id for finding in diagnosis.ranked] == ["PD07.large", "PD03.sure", "PD04.vague"]


def test_what_costs_the_same_is_ranked_by_name() -> None:
    findings = [finding_of(f"PD03.{name}", 2.0) for name in "cab"]
    assert [f.id for f in examined(finds("PD03", *findings)).ranked] == ["PD03.a", "PD03.b", "PD03.c"]


POOLS = [
    (Part.INPUT_WAIT, Part.INPUT_WAIT, 10.0),
    (Part.GC, Part.GC, 5.0),
    (Part.COMPUTE, Part.OTHER, 15.0),
    (Part.EPOCH, Part.EPOCH, 4.0),
]


@pytest.mark.parametrize(("part", "other", "pool_ms"), POOLS)
def test_no_millisecond_is_billed_twice(part: Part, other: Part, pool_ms: float) -> None:
    first = finding_of("PD03.first", 0.8 * pool_ms, part=part)
    second = finding_of("PD04.second", 0.6 * pool_ms, low=0.45 * pool_ms, part=other)
    diagnosis = examined(finds("PD03", first), finds("PD04", second))
    billed = {finding.id: finding.savings for finding in diagnosis.ranked}
    assert billed["PD03.first"] == first.savings  # the larger saving is billed first, and whole
    assert sum(saved.ceiling_ms for saved in billed.values()) == pytest.approx(pool_ms)
    cut = billed["PD04.second"]
    assert cut.low_ms == pytest.approx(0.15 * pool_ms)
    assert cut.share == pytest.approx(cut.ceiling_ms / 30.0)
    assert cut.claimed == pytest.approx(2 / 3) and billed["PD03.first"].claimed == 0


def test_pools_do_not_touch_each_other() -> None:
    findings = [finding_of(f"PD03.{part.value}", ms, part=part) for part, _, ms in POOLS]
    diagnosis = examined(finds("PD03", *findings))
    assert {f.id: f.savings.ceiling_ms for f in diagnosis.ranked} == {f.id: f.savings.ceiling_ms for f in findings}


def test_what_causes_a_wait_may_cost_the_rest_of_the_step_too() -> None:
    """Ten milliseconds of it are the wait, six come from the rest; its lower end is not scaled for that."""
    spilling = finding_of("PD03.spilling", 16.0, low=9.0, part=Part.INPUT_WAIT)
    computing = finding_of("PD07.computing", 11.0, part=Part.COMPUTE)
    billed = {f.id: f.savings for f in examined(finds("PD03", spilling), finds("PD07", computing)).ranked}
    assert billed["PD03.spilling"] == spilling.savings
    assert billed["PD07.computing"].ceiling_ms == pytest.approx(15.0 - 6.0)
    whole = examined(finds("PD07", finding_of("PD07.all", 20.0, low=9.0))).ranked[0].savings
    assert (whole.low_ms, whole.high_ms, whole.ceiling_ms) == (9.0, 15.0, 15.0)  # no more than there is


def test_how_far_a_prediction_may_be_off_is_billed_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "_known", lambda: calibration.Known({"PD03": [(1.0, 3.0)] * 40}))
    waits = finding_of("PD03.waits", 10.0, part=Part.INPUT_WAIT)
    computing = finding_of("PD07.computing", 15.0, low=12.0, part=Part.COMPUTE)
    told = {f.id: f.savings for f in examined(finds("PD03", waits), finds("PD07", computing)).ranked}
    assert told["PD03.waits"].predicted_ms == (10.0, 10.0) and told["PD03.waits"].high_ms > 10.0
    assert told["PD07.computing"].claimed == 0 and told["PD07.computing"].low_ms == pytest.approx(12.0)


def test_all_together_never_exceeds_the_step_and_its_epochs() -> None:
    greedy = [finding_of(f"PD{n:02d}.all", 30.0, part=part) for n, part in enumerate((*Part, *Part), start=20)]
    diagnosis = examined(*(finds(f.id[:4], f) for f in greedy))
    assert sum(f.savings.ceiling_ms for f in diagnosis.ranked) == pytest.approx(30.0 + STEP.irregular_ms)
    for finding in diagnosis.ranked:
        saved = finding.savings
        assert 0 <= saved.low_ms <= saved.high_ms <= saved.ceiling_ms


def test_fixes_in_one_pool_together_save_less_than_their_sum() -> None:
    check = finds("PD03", finding_of("PD03.a", 6.0), finding_of("PD03.b", 6.0, line=2))
    combined = examined(check).combined
    assert combined is not None
    assert combined.high_ms == pytest.approx(15.0 * (1 - (1 - 6 / 15) ** 2))
    assert combined.high_ms < 12.0


def test_fixes_in_two_pools_add_up_and_their_errors_are_independent() -> None:
    a, b = finding_of("PD03.a", 6.0, low=3.0), finding_of("PD03.b", 4.0, low=2.0, part=Part.GC)
    combined = examined(finds("PD03", a, b)).combined
    assert combined is not None
    assert (combined.low_ms + combined.high_ms) / 2 == pytest.approx(4.5 + 3.0)
    assert (combined.high_ms - combined.low_ms) / 2 == pytest.approx(math.hypot(1.5, 1.0))
    assert combined.step_ms == 30.0


def test_what_epochs_save_is_taken_off_the_step_with_its_epochs() -> None:
    at_starts = finding_of("PD03.a", 4.0, part=Part.EPOCH)
    combined = examined(finds("PD03", at_starts)).combined
    assert combined is not None
    assert (combined.high_ms, combined.step_ms) == (4.0, 30.0 + STEP.irregular_ms)
    assert at_starts.savings.of(STEP) == combined.step_ms


def _loading(lanes: int) -> Finding:
    """A wait of 10 ms that workers would hide behind the other 20."""
    finding = finding_of("PD03.a", 10.0, part=Part.INPUT_WAIT)
    return dataclasses.replace(finding, savings=dataclasses.replace(finding.savings, lanes=lanes))


@pytest.mark.parametrize(
    ("lanes", "compute_ms", "together_ms"),
    [
        (1, 5.0, 15.0),  # 15 ms of training still hide the 10 ms that one worker takes
        (1, 13.0, 20.0),  # 7 ms of training do not: 3 ms are waited for again
        (2, 13.0, 23.0),  # two workers need 5
        (0, 13.0, 23.0),  # the wait is gone, not hidden
    ],
)
def test_what_runs_beside_the_step_needs_enough_of_it_left(lanes: int, compute_ms: float, together_ms: float) -> None:
    checks = (finds("PD03", _loading(lanes)), finds("PD07", finding_of("PD07.b", compute_ms)))
    combined = examined(*checks).combined
    assert combined is not None
    assert combined.high_ms == pytest.approx(together_ms)
    assert combined.low_ms <= combined.high_ms


def test_everything_together_saves_no_more_than_the_step() -> None:
    greedy = [finding_of(f"PD{n:02d}.all", 30.0, part=part) for n, part in enumerate((*Part, *Part), start=20)]
    combined = examined(*(finds(f.id[:4], f) for f in greedy)).combined
    assert combined is not None
    assert combined.low_ms <= combined.high_ms <= combined.step_ms == 30.0 + STEP.irregular_ms
