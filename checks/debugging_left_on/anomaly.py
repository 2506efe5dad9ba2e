"""Autograd's anomaly detection: a trace for each node of the graph, and a search for NaN behind each."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, location, milliseconds, savings
from perfdoctor.api.quantities import CallSite, Evidence, Step

from .._shared.wording import in_words_of
from .limits import Limits

KINDS = ("anomaly_trace", "anomaly_check")
_SPREAD = (0.75, 1.1)
"""Around the measured time: 0.94 and 0.77 of it in the two programs whose truth is known. The first trace through a
line reads its source, so the steps that were watched are dearer. At best the bookkeeping of the traces goes too."""


def anomaly_detection(evidence: Evidence, step: Step, calls: tuple[CallSite, ...], limits: Limits) -> Finding | None:
    """None where it was off, or took less than its least share of the step."""
    traces, checks = ([call for call in calls if call.kind == kind] for kind in KINDS)
    traces_ms, checks_ms = (sum(call.ms_per_step for call in some) for some in (traces, checks))
    cost = Cost(step, traces_ms + checks_ms)
    if cost.ms <= 0 or step.step_ms <= 0 or cost.share < limits.min_share:
        return None
    dearest = max((*traces, *checks), key=lambda call: call.ms_per_step)
    known = dearest.detail == "switch"
    # On CUDA the search also waits for what the device was asked to do anyway.
    waits = evidence.on_cuda
    low, high = _SPREAD[0] * (traces_ms if waits else cost.ms), _SPREAD[1] * cost.ms
    return Finding(
        id="PD16.anomaly-detection",
        severity=cost.severity(limits.min_share, limits.error_share),
        confidence=Confidence.MEDIUM if waits else Confidence.HIGH,
        message=("this line left autograd's anomaly detection on" if known else "autograd's anomaly detection is on")
        + ": {cost_ms} per step ({cost_share})",
        reasoning="each operator whose gradient will be needed takes a Python stack trace ({traces:trace} per step, "
        "{traces_ms}), and each result of the backward pass is searched for NaN ({checks:time}, {checks_ms})",
        evidence=(
            *cost.measured(),
            Measurement("traces", round(sum(call.calls_per_step for call in traces)), "count", "stack traces per step"),
            milliseconds("traces_ms", traces_ms, "taking them, per step"),
            Measurement("checks", round(sum(call.calls_per_step for call in checks)), "count", "searches per step"),
            milliseconds("checks_ms", checks_ms, "searching for NaN, per step"),
        ),
        location=location(evidence.job.option("detect_anomaly") or dearest.site),
        fix=Fix(
            text="Switch it off, and on again for a run that is to find where a NaN comes from.",
            code=in_words_of(
                evidence.job,
                "torch.autograd.set_detect_anomaly(False)",
                lightning="trainer = Trainer(..., detect_anomaly=False)",
            ),
            risk="A NaN in a gradient then ends no run; watch the loss.",
            remedies=("debug.off",),
        ),
        savings=savings(
            step,
            low,
            high,
            "the traces and the search, timed in a few steps of the job itself"
            + ("; at least the traces, because the search also waits for the device" if waits else ""),
            ceiling=min(high, step.parts.forward + step.parts.backward),
        ),
    )
