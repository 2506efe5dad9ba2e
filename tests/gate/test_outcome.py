"""What pairs of launches make of a metric, and which of them can fail a gate."""

from __future__ import annotations

import math

import pytest

from perfdoctor.gate.decision import Decision, Policy, estimate
from perfdoctor.gate.model import Assume, Judgement, Verdict
from perfdoctor.gate.outcome import reason, share, timed
from perfdoctor.gate.samples import ALL_IN, CORE, Pair, Side

POLICY = Policy()
SLOWER = [math.log(1.06) + 0.002 * (-1) ** i for i in range(8)]


def seen(pairs: int = 8) -> list[Pair]:
    return [Pair(Side(10.0, 11.0, 0.0, 0.0, 1e9), Side(10.6, 12.0, 0.0, 0.0, 1e9), 0.06, 0.09)] * pairs


def decision(verdict: Verdict) -> Decision:
    return Decision(verdict, estimate(SLOWER), "it was decided so")


@pytest.mark.parametrize(
    ("name", "verdict", "gates"),
    [
        (CORE, Verdict.INCONCLUSIVE, True),
        (CORE, Verdict.REGRESSION, True),
        (ALL_IN, Verdict.INCONCLUSIVE, False),
        (ALL_IN, Verdict.REGRESSION, True),
    ],
)
def test_only_the_uncontended_step_makes_a_gate_inconclusive(name: str, verdict: Verdict, gates: bool) -> None:
    assert timed(name, seen(), decision(verdict)).gates is gates


def test_a_step_time_is_told_with_its_interval() -> None:
    judged = timed(CORE, seen(), decision(Verdict.REGRESSION))
    assert (judged.before, judged.after) == (10.0, 10.6)
    assert judged.change == pytest.approx(0.06, abs=0.001)
    assert judged.low is not None and judged.high is not None
    assert judged.low < judged.change < judged.high
    assert judged.high - judged.low < 0.01


@pytest.mark.parametrize(
    ("after", "verdict", "gates"),
    [(0.30, Verdict.REGRESSION, True), (0.229, Verdict.INCONCLUSIVE, False), (0.21, Verdict.PASS, True)],
)
def test_a_share_that_cannot_be_told_is_shown_only(after: float, verdict: Verdict, gates: bool) -> None:
    pairs = [(0.2, after + 0.002 * (-1) ** i) for i in range(8)]
    judged = share("data_wait_share", "wait for data", pairs, POLICY)
    assert (judged.verdict, judged.gates) == (verdict, gates)
    assert judged.change == pytest.approx(after - 0.2)


def test_the_sentence_names_the_step_what_is_higher_what_is_new_and_what_is_outside_its_budget() -> None:
    def counted(name: str, label: str) -> Judgement:
        return Judgement(name, label, "count", Assume.EXACT, 1, 2, Verdict.REGRESSION, "counted exactly", 1)

    judgements = [
        timed(CORE, seen(), decision(Verdict.REGRESSION)),
        counted("syncs", "scalar reads"),
        counted("finding:PD10.scalar-reads", "finding PD10.scalar-reads"),
        counted("assert:copies", "tensor copies"),
    ]
    said = reason(Verdict.REGRESSION, judgements, {CORE: decision(Verdict.REGRESSION)})
    assert said == (
        "the uncontended step is 6.0 % slower; higher: scalar reads; outside budget: tensor copies; "
        "new: PD10.scalar-reads"
    )
