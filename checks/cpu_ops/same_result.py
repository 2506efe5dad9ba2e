"""Functions of the user's that compute the same in every step, or more than once in one, by Python and NumPy."""

from __future__ import annotations

from perfdoctor.api.causes import recalled, steps_ahead
from perfdoctor.api.findings import Confidence, Cost, Finding, location, savings
from perfdoctor.api.quantities import Evidence, Missing, SameResult, Site, Step

from .._shared.lines import function, key
from .._shared.same_results import SAVED, how_often, once, reasoning, told
from .limits import Limits

_ELSEWHERE = "input_wait"
"""The part in which batches are made: that is judged as data loading."""


def needless(evidence: Evidence, step: Step, limits: Limits) -> tuple[SameResult, ...]:
    """Functions of the training loop that are called again for what they have returned, and cost enough; none where
    nobody looked."""
    seen = evidence.same_results
    rows = () if isinstance(seen, Missing) else seen
    return tuple(
        one for one in rows if one.part != _ELSEWHERE and _felt(evidence, step, one).share >= limits.repeated_share
    )


def is_about(finding: Finding, one: SameResult) -> bool:
    """Whether a finding lies at the line that calls the function, in it or in one that only it calls."""
    place = finding.location
    if place is None:
        return False
    functions = {function(site) for site in (one.defined_at, *one.within)}
    return (place.file, place.line) == key(one.at) or (place.file, place.function) in functions


def runs_in(site: Site, rows: tuple[SameResult, ...]) -> bool:
    """Whether a line is one of these functions'."""
    return any(function(site) in {function(place) for place in (one.defined_at, *one.within)} for one in rows)


def _felt(evidence: Evidence, step: Step, one: SameResult) -> Cost:
    return Cost(step, evidence.felt_ms(sum(_recalled(evidence, one)) / 2))


def _recalled(evidence: Evidence, one: SameResult) -> tuple[float, float]:
    return recalled(one, steps_ahead(evidence))


def same_result(evidence: Evidence, step: Step, one: SameResult, limits: Limits) -> Finding:
    """By what the function takes."""
    least, most = _recalled(evidence, one)
    cost, felt = Cost(step, (least + most) / 2), _felt(evidence, step, one)
    return Finding(
        id="PD10.same-result",
        severity=felt.severity(limits.repeated_share, limits.error_share),
        confidence=Confidence.HIGH,
        message=f"{{function}} {how_often(one, 'step')}: {{function_ms}} per step ({{cost_share}})",
        reasoning=reasoning(one, "step"),
        evidence=(*cost.measured(), *told(one, "step", cost.ms)),
        location=location(one.at),
        fix=once(one),
        savings=savings(
            step,
            SAVED[0] * evidence.felt_ms(least),
            SAVED[1] * evidence.felt_ms(most),
            "some of its calls, timed in the job itself; 85 % of that or all comes back",
        ),
    )
