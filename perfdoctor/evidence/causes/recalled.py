"""What results would save that are kept: of a function whose arguments are drawn from a few, in the long run."""

from __future__ import annotations

from ..model import Evidence, Missing, SameResult

_CAME_AGAIN = 3
"""Calls, from which on they say how many arguments there are."""
_DRAWN = 0.12
"""Of all calls, from one to the next with the same arguments: a third on average, where they are drawn by chance, and
less than this in one of 16 cases of three such calls, in one of 100 of seven. Next to none, where neighbours share
them, and then more calls meet more arguments."""
_AHEAD = 10
"""Times the steps that were seen: `range(10**9)` is no plan."""
_SURE = 0.9
"""That there are no more arguments than the most."""


def steps_ahead(evidence: Evidence) -> float:
    """That the loop is to take, as far as that is known; at least those that were seen."""
    growth, step = evidence.growth, evidence.step
    planned = 0 if isinstance(growth, Missing) else growth.planned_steps
    seen = 0 if isinstance(step, Missing) else step.count
    return float(max(seen, min(planned, _AHEAD * seen)))


def recalled(one: SameResult, steps: float) -> tuple[float, float]:
    """What its kept results would have saved after so many steps (for a worker, batches), least and most; ms per step.

    As much as in the calls that came again while it was watched; more where they are drawn by chance from a number of
    arguments, most of which have not been seen twice yet. `k` of `n` calls that came again tell that number: about
    n^2 / 2k, as many people share birthdays, and at most the same by the least `k` that Poisson allows.
    """
    drawn, about = one.drawn, different(one)
    if drawn is None or about is None:
        return one.ms_per_step, one.ms_per_step
    from scipy.special import gammaincinv  # only here; scipy.stats would take 0.7 s to import

    calls, again = drawn.calls_per_step * steps, drawn.calls - drawn.arguments
    most = about * again / gammaincinv(again, 1 - _SURE)
    least_ms, most_ms = (drawn.ms_per_step * max(0.0, 1 - number / calls) for number in (most, about))
    return max(one.ms_per_step, least_ms), max(one.ms_per_step, most_ms)


def different(one: SameResult) -> float | None:
    """How many arguments there may be; None where they are not seen to be drawn by chance."""
    drawn = one.drawn
    again = 0 if drawn is None else drawn.calls - drawn.arguments
    if drawn is None or again < _CAME_AGAIN or drawn.apart < _DRAWN:
        return None
    return drawn.calls**2 / (2 * again)
