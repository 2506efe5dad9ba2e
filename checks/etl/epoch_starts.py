"""What each epoch makes anew between two steps, though it is the same every time."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Measurement,
    location,
    milliseconds,
    present,
    savings,
    severity,
    share,
)
from perfdoctor.api.quantities import EpochStarts, Evidence, Missing, SameResult, Step

from .._shared.same_results import SAVED, once
from .._shared.spread import Spread, starts_of
from .waiting import Limits


def made_each_epoch(evidence: Evidence, step: Step, limits: Limits) -> tuple[Finding, ...]:
    """One for each function; none where nothing was seen to come again."""
    seen = starts_of(evidence.epoch_starts)
    if seen is None:
        return ()
    again = evidence.same_results
    in_steps = set() if isinstance(again, Missing) else {one.defined_at for one in again}  # PD10 tells of them
    return present(*(_finding(step, seen, one, limits) for one in seen.rows if one.defined_at not in in_steps))


def _finding(step: Step, seen: EpochStarts, one: SameResult, limits: Limits) -> Finding | None:
    low, high = (fraction * one.ms_per_step / seen.every_steps for fraction in SAVED)
    spread = Spread.of(seen)
    sure_share = spread.share(step, low)
    if sure_share < limits.min_share:
        return None
    return Finding(
        id="PD03.same-each-epoch",
        severity=severity(sure_share, limits.min_share, limits.error_share),
        confidence=Confidence.HIGH,
        message="{function} returns the same again every {every:step}: {function_ms} each time, {function_share} of "
        "all the time",
        reasoning="{starts:time}, each {every:step} after the last, its calls between two steps were followed: the "
        "arguments held the same, what it returned held the same, and no random number was drawn; such a step takes "
        "{start_ms} more than others",
        evidence=(
            Measurement("function", f"`{one.function}()`", "text", "function"),
            milliseconds("function_ms", one.ms_per_step, "in its calls, each time"),
            share("function_share", min(1.0, spread.share(step, high)), "of the loop's time"),
            Measurement("calls", one.calls_per_step, "count", "calls, each time"),
            Measurement("arguments", one.arguments, "count", "different arguments among them"),
            Measurement("every", seen.every_steps, "count", "steps from one time to the next"),
            Measurement("starts", seen.starts, "count", "times that were followed"),
            milliseconds("start_ms", seen.ms, "that such a step takes longer than others"),
        ),
        location=location(one.at),
        fix=once(one),
        savings=savings(
            step,
            low,
            high,
            "its calls, timed in the job itself, spread over the steps from one to the next; 85 % of that or all comes "
            "back",
            part=spread.part,
        ),
    )
