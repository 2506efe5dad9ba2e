"""Work of no use to training: what leaving it out saves."""

from __future__ import annotations

from perfdoctor.api.findings import Measurement, milliseconds
from perfdoctor.api.quantities import AsideWork, Evidence, Missing

from .lines import key

OPERATORS = (0.85, 1.15)
"""Of what they took in the steps that were watched."""
AROUND_MS = (0.002, 0.010)
"""Python and dispatch around each operator: 5 to 20 us with autograd, of which the watched time has a part."""

_VALIDATING = "_is_all_true"


def told_here(found: tuple[AsideWork, ...] | Missing, evidence: Evidence) -> tuple[AsideWork, ...]:
    """Without lines that compute what is there already: those are told as such."""
    again = () if isinstance(evidence.repeated_work, Missing) else evidence.repeated_work
    elsewhere = {key(one.at) for one in again}
    return () if isinstance(found, Missing) else tuple(one for one in found if key(one.at) not in elsewhere)


def validates(one: AsideWork) -> bool:
    """Whether it is what `torch.distributions` tests of what it is given: nobody else asks by that operator."""
    return _VALIDATING in one.operators


def saved_ms(one: AsideWork) -> tuple[float, float]:
    """Per step: at least, and at most."""
    low, high = with_around(one.forward_ms, one.ops_per_step)
    return low, max(high, one.later_ms)


def with_around(ms: float, ops: float) -> tuple[float, float]:
    """What so many operators that were watched for `ms` take, with what is around them: at least, and at most."""
    low, high = (share * ms + around_ms * ops for share, around_ms in zip(OPERATORS, AROUND_MS, strict=True))
    return low, high


def measured(one: AsideWork) -> tuple[Measurement, ...]:
    """The operators."""
    return (
        milliseconds("operators_ms", one.forward_ms, "in these operators, per step"),
        Measurement("operators", one.ops_per_step, "count", "operators that training does not need, per step"),
        Measurement("names", ", ".join(f"`{name}`" for name in one.operators), "text", "the longest of them"),
    )
