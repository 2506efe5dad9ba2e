"""What comes once in many steps, such as an evaluation, and goes through all that was kept in those before."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Fix,
    Measurement,
    Part,
    Severity,
    location,
    milliseconds,
    savings,
)
from perfdoctor.api.quantities import GrowingContainer, LongerRounds, Step, StepGrowth

from .growth import Limits, goes_on, of_whole_loop
from .kept import container_measured

_SURELY = 0.5
"""Of what rounds take longer: some held a window, which lengthens them too."""


def longer_rounds(step: Step, growth: StepGrowth, limits: Limits) -> Finding | None:
    """An opportunity: rounds are too few for a trend that is certain. At least a part of what the rounds seen took
    longer is saved; those to come take longer, evenly if no more than one loop goes through what is kept."""
    rounds = growth.rounds
    if rounds is None:
        return None
    low = _SURELY * rounds.longer_ms / rounds.every
    if low < _SURELY * limits.min_share * step.step_ms:
        return None
    seen = rounds.every * (rounds.count + 1)
    is_planned = goes_on(seen, growth.planned_steps)
    ahead = growth.planned_steps / seen if is_planned else 1.0
    planned_ms = rounds.early_ms + ahead * (rounds.late_ms - rounds.early_ms)
    most = max((rounds.late_ms - rounds.early_ms) / rounds.every, _in_the_end(step, rounds, planned_ms))
    return Finding(
        id="PD15.longer-rounds",
        severity=Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message="what comes every {every:step} went from {early_ms} to {late_ms}: it goes through all of {name} so far",
        reasoning="{name} gains {per_round:element} each time, had {length} in the end and is never emptied; {line} "
        "works on all of them, and no other step does"
        + ("; if it goes on so, {planned_ms} at step {planned}" if is_planned else ""),
        evidence=(
            milliseconds("early_ms", rounds.early_ms, "beyond the usual step, at first"),
            milliseconds("late_ms", rounds.late_ms, "beyond the usual step, in the end"),
            Measurement("every", rounds.every, "count", "steps from one to the next"),
            Measurement("rounds", rounds.count, "count", "rounds seen"),
            Measurement("per_round", round(rounds.kept.per_step * rounds.every), "count", "elements more each time"),
            Measurement(
                "line", f"{rounds.gone_through_at.file}:{rounds.gone_through_at.line}", "text", "where it is used"
            ),
            *container_measured(rounds.kept),
            *(
                (
                    Measurement("planned", growth.planned_steps, "count", "steps that the loop is to take"),
                    milliseconds("planned_ms", planned_ms, "beyond the usual step then, if it rises evenly"),
                )
                if is_planned
                else ()
            ),
        ),
        location=location(rounds.kept.site or rounds.gone_through_at),
        fix=_emptied(rounds.kept),
        savings=savings(
            step,
            low,
            max(low, most),
            "at least half of what the rounds seen took longer than the first of them; at most what the last ones did, "
            "or those of all planned steps",
            part=Part.EPOCH,
        ),
    )


def _in_the_end(step: Step, rounds: LongerRounds, planned_ms: float) -> float:
    """Of this step, the share that the mean step of the whole loop would be spared, if the last round takes
    `planned_ms` and those before it evenly less."""
    mean_ms = (planned_ms - rounds.early_ms) / 2 / rounds.every
    return of_whole_loop(Part.EPOCH.whole_ms(step), rounds.longer_ms / rounds.every, mean_ms)


def _emptied(kept: GrowingContainer) -> Fix:
    keeper = kept.name.rpartition(".")[0]
    if kept.site is None and keeper:
        return Fix(
            text="Reset it once its value was read: a metric of torchmetrics keeps what it was given until `reset()`. "
            "Lightning does so itself where the metric is logged, and not its value.",
            code=f"{keeper}.reset()",
            risk="The value is then of one round, and not of all so far.",
        )
    return Fix(
        text="Empty it once it was used, or keep what is needed of it: running sums, the last results.",
        code=f"{kept.name}.clear()",
        risk="Whoever wants all of them later has to keep them elsewhere.",
    )
