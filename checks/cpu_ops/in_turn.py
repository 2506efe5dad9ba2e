"""Modules that a loop calls for one position of a sequence after the other, or for one more each time, though they take
whole sequences."""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Fix,
    Measurement,
    location,
    milliseconds,
    present,
    savings,
)
from perfdoctor.api.quantities import Evidence, InTurn, Missing, Step

from .._shared.run_again import passes_cost, saved_in_turn
from .limits import Limits


def called_in_turn(evidence: Evidence, step: Step, limits: Limits) -> tuple[tuple[Finding, ...], set[tuple[int, str]]]:
    """One for each module of which one call for all positions is known to save enough; and the loops that call them."""
    if isinstance(evidence.ops, Missing):
        return (), set()
    found = [(one, _finding(step, one, limits)) for one in evidence.ops.in_turn]
    loops = {(one.loop_line, one.loop) for one, finding in found if finding is not None}
    return present(*(finding for _, finding in found)), loops


def _finding(step: Step, one: InTurn, limits: Limits) -> Finding | None:
    cost = passes_cost(step, one.milliseconds)
    low, high = saved_in_turn(step, one)
    if low < limits.repeated_share * step.step_ms:
        return None
    told = _by_prefix(one) if one.by_prefix else _by_position(one)
    return Finding(
        id=told.id,
        severity=cost.severity(limits.repeated_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message=told.message,
        reasoning=told.reasoning,
        evidence=(
            *cost.measured("in this module and all that it holds"),
            Measurement("layer", one.name or one.kind, "text", "the module"),
            Measurement("calls", one.calls_per_step, "count", "calls per step"),
            Measurement("loop", one.loop, "text", "the loop"),
            Measurement("together", one.together, "count", "positions in one call, as timed"),
            milliseconds("once_ms", one.once_ms, "a call with these"),
            milliseconds("now_ms", one.now_ms, "a call as the loop makes it, half-way where they become longer"),
        ),
        location=location(one.at),
        fix=told.fix,
        savings=savings(
            step, low, high, "the module's own pass, run again as the loop calls it and for many in one call"
        ),
    )


@dataclass(frozen=True)
class _Told:
    """What is said of a way to call a module."""

    id: str
    message: str
    reasoning: str
    fix: Fix


def _by_position(one: InTurn) -> _Told:
    return _Told(
        id="PD10.called-in-turn",
        message="{layer} is called for one position after the other, {calls:time} per step: {cost_ms} ({cost_share})",
        reasoning="one call needs the one before by the state alone that it is given, which its recurrent layer takes "
        "on by itself: {together:position} in one call give the same numbers and take {once_ms}, one takes {now_ms}, "
        "forwards and backwards, timed after the last step",
        fix=Fix(
            text=f"Call it once, with all positions of `{one.loop}` along the dimension of time, and take the loss of "
            "all that it returns. Where it makes a text of its own, in evaluation, the loop stays.",
            code="scores, state = self.decoder(targets[:, :-1], state)\n"
            "# not for t in range(T): scores, state = self.decoder(targets[:, t : t + 1], state)",
            risk="Dropout draws other masks.",
        ),
    )


def _by_prefix(one: InTurn) -> _Told:
    return _Told(
        id="PD10.called-by-prefix",
        message="{layer} is called anew for each longer beginning, {calls:time} per step: {cost_ms} ({cost_share})",
        reasoning="what it makes of a position does not change with those that follow: {together:position} in one call "
        "give the same numbers and take {once_ms}, half of them take {now_ms}, forwards and backwards, timed after the "
        "last step",
        fix=Fix(
            text=f"Call it once, with the whole sequence, before `{one.loop}`: what a call with the first t positions "
            "gives for its last one is what this gives for position t. Where it makes a text of its own, in "
            "evaluation, the loop stays.",
            code="scores = model(tokens[:, :-1])\n# not for t in range(1, T): scores = model(tokens[:, :t])[:, -1]",
            risk="Dropout draws one mask for all positions.",
        ),
    )
