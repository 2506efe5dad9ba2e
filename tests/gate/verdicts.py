"""What tests ask of a gate's result."""

from __future__ import annotations

from perfdoctor.gate.model import GateResult, Judgement, Verdict


def regressions(result: GateResult) -> tuple[Judgement, ...]:
    """The judgements that fail it."""
    return tuple(j for j in result.judgements if j.verdict is Verdict.REGRESSION and j.gates)
