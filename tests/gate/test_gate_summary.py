from __future__ import annotations

from perfdoctor.gate.model import Assume, Judgement, Verdict, decisive, some


def _judged(name: str, verdict: Verdict = Verdict.REGRESSION, gates: bool = True) -> Judgement:
    return Judgement(name, name.rpartition(":")[2], "count", Assume.EXACT, 1, 2, verdict, "counted", gates=gates)


def test_names_beyond_the_most_are_counted() -> None:
    assert some(["a", "b"], 2) == "a, b"
    assert some(["a", "b", "c", "d"], 2) == "a, b and 2 more"


def test_a_broken_budget_is_named_apart_from_what_got_worse() -> None:
    judgements = [_judged("copies"), _judged("assert:samples_per_s"), _judged("kernels")]
    assert decisive(Verdict.REGRESSION, judgements, 3, "higher") == [
        "higher: copies, kernels",
        "outside budget: samples_per_s",
    ]


def test_only_what_made_the_verdict_is_named() -> None:
    judgements = [
        _judged("copies", gates=False),
        _judged("kernels", Verdict.PASS),
        _judged("assert:syncs", Verdict.INCONCLUSIVE),
    ]
    assert decisive(Verdict.REGRESSION, judgements, 3) == []
    assert decisive(Verdict.INCONCLUSIVE, judgements, 3) == ["budget not judged: syncs"]
