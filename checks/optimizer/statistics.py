"""Statistics of an averaged model's batch norms that are made anew again and again, by passing all data through it."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, Part, Severity, location, savings
from perfdoctor.api.quantities import CallSite, Evidence, Missing, Step

from .limits import Limits

_CALLS = 2
"""One may be the last thing that a job does."""
_SPREAD = (0.8, 1.0)
"""Of what the calls take, by the job's own clock: one of them remains."""


def statistics_updates(evidence: Evidence, step: Step, limits: Limits) -> tuple[Finding, ...]:
    """One for each line whose calls cost enough. Opportunities: who looks at the averaged model between two of them
    needs each."""
    calls = () if isinstance(evidence.statistics_updates, Missing) else evidence.statistics_updates
    return tuple(
        _finding(step, call, Cost(step, call.ms_per_step))
        for call in calls
        if call.calls_per_step * step.count >= _CALLS and Cost(step, call.ms_per_step).share >= limits.schedule_share
    )


def _finding(step: Step, call: CallSite, cost: Cost) -> Finding:
    apart = step.irregular_ms >= cost.ms
    # What neither the steady step nor the irregular ones hold comes on top: as much of the step as it is of all.
    saved_ms = cost.ms if apart else step.step_ms * cost.ms / (step.step_ms + cost.ms)
    return Finding(
        id="PD17.statistics-updates",
        severity=Severity.NOTE,
        confidence=Confidence.HIGH,
        message="`update_bn` passes all data through the averaged model every {every:step}: {cost_ms} per step "
        "({cost_share})",
        reasoning="one call takes {call_ms}; the statistics serve the averaged model alone, and the next update of the "
        "average makes them old",
        evidence=(
            *cost.measured(),
            Measurement("every", max(1, round(1 / call.calls_per_step)), "count", "steps from one call to the next"),
            Measurement("call_ms", call.ms_per_step / call.calls_per_step, "ms", "one call"),
        ),
        location=location(call.site),
        fix=Fix(
            text="Call it once, before the averaged model is used: after training, or before it is evaluated.",
            code="torch.optim.swa_utils.update_bn(loader, averaged)  # after the loop",
            risk="Until then the averaged model has the statistics of its last call.",
        ),
        savings=savings(
            step,
            _SPREAD[0] * saved_ms,
            _SPREAD[1] * saved_ms,
            "the calls' own time",
            part=Part.EPOCH if apart else Part.OTHER,
        ),
    )
