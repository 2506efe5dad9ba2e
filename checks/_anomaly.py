"""Autograd's anomaly detection, left on: a traceback for every operator, a read of every gradient."""

from __future__ import annotations

from typing import Protocol

from perfdoctor.api import (
    ANOMALY_OFF,
    Confidence,
    Evidence,
    Finding,
    Fix,
    Measurement,
    Missing,
    Part,
    Step,
    in_step,
    location,
    milliseconds,
    savings,
    severity,
    share,
)


class AnomalyLimits(Protocol):
    """The thresholds that concern it."""

    @property
    def read_share(self) -> float: ...
    @property
    def error_share(self) -> float: ...


_SPREAD = (0.4, 0.8)
"""Of the timed price of a small node with one input: others are read several times for one traceback. A network whose
gradients cost 16 ms by that price lost 9.8."""
_TRACED = 0.2
"""Of that price, at least: the traceback. Searching the job's own gradients, which may be large, comes on top."""
_SEARCHING = ("isnan", "any", "item")
"""Operators with which the engine of autograd searches a gradient."""
_MOST = 0.9
"""Of forward and backward pass: something they do computes."""


def findings(evidence: Evidence, step: Step, limits: AnomalyLimits) -> list[Finding]:
    """What it costs, by the gradients that it reads and the price of one; nothing where it was not timed."""
    aids, ops, calls = evidence.debugging, evidence.ops, evidence.call_sites
    if isinstance(aids, Missing) or isinstance(ops, Missing) or isinstance(calls, Missing) or ops.anomaly_us is None:
        return []
    aid = next((aid for aid in aids if aid.off == ANOMALY_OFF), None)
    checked = sum(
        call.calls_per_step
        for call in calls
        if call.kind == "scalar_read" and call.detail == "backward" and call.by_library
    )
    most = _MOST * (step.parts.forward + step.parts.backward)
    nodes = checked * ops.anomaly_us / 1000
    searching = in_step(step, ops, sum(op.total_ms_per_step for op in ops.ops if op.name in _SEARCHING))
    least, largest = _SPREAD
    low = min(max(least * nodes, searching + _TRACED * nodes), most)
    high = min(largest * nodes + searching, most)
    cost = (low + high) / 2
    if aid is None or cost < limits.read_share * step.step_ms:
        return []
    return [
        Finding(
            id="PD10.anomaly-detection",
            severity=severity(cost / step.step_ms, limits.read_share, limits.error_share),
            confidence=Confidence.HIGH,
            message="autograd's anomaly detection is on: it costs about {cost_ms} a step, {cost_share} of it",
            reasoning="every operator of the forward pass notes its traceback, and each of the {checked} gradients of "
            "a step is searched for NaN and read; timed in this job, that is {each_us} for one",
            evidence=(
                milliseconds("cost_ms", cost, "per step"),
                share("cost_share", cost / step.step_ms, "of the step"),
                Measurement("checked", round(checked), "count", "gradients that are read per step"),
                Measurement("each_us", ops.anomaly_us, "us", "for one, with the traceback"),
            ),
            location=location(aid.site),
            fix=Fix(
                text="Switch it off, and on again when a NaN is to be found.",
                code=f"{ANOMALY_OFF}  # Lightning: Trainer(detect_anomaly=False)",
                risk="A NaN in a gradient is noticed by the loss only.",
                remedies=("debug.off",),
            ),
            savings=savings(
                step,
                Part.COMPUTE,
                ceiling=high,
                low=low,
                high=high,
                method="40 to 80 % of what a small operator takes more with it than without, timed in this job, for "
                "each gradient that is read, and the time of the operators that search them for NaN",
            ),
        )
    ]
