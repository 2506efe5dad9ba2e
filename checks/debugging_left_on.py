"""Debugging that was left on: it helped to find an error once, and costs time in every step since.

What it looks at
----------------
Autograd's anomaly detection, in a few steps of the job: each stack trace that an operator takes in the forward pass,
each search for NaN behind a node of the backward pass, how long they take, and the line that switched it on.

Why it costs time
-----------------
With anomaly detection on, every operator whose gradient will be needed takes a Python stack trace, and every result of
the backward pass is searched for NaN. A network of 40 layers took 1.6 ms per step without it and 13.6 ms with it.

Example
-------
    torch.autograd.set_detect_anomaly(True)   # since the NaN of last spring

How to fix
----------
Switch it off, and on again for a run that is to find where a NaN comes from.

When it stays silent
--------------------
Below 5 % of the step, and where it is off. Aids that variables switch on (`PYTHONDEVMODE`, `CUDA_LAUNCH_BLOCKING`,
`TORCH_LOGS`, ...) are named, and told where the report says how far to trust the run (PD96): what they cost cannot be
told from one run.

Limits
------
On a GPU the search also waits for what the device was asked to do anyway, so only the traces are sure to be saved.
Nothing inside compiled code is seen. Of a profiler left on, and of deterministic algorithms, the cost is not measured.

References
----------
- PyTorch, "Performance tuning guide": disable debugging APIs
- Lightning-AI/pytorch-lightning#17359: anomaly detection left on, 2.5 times
"""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.findings import (
    Check,
    Confidence,
    Cost,
    Finding,
    Fix,
    Measurement,
    Outcome,
    cannot_tell,
    clear,
    found,
    location,
    milliseconds,
    savings,
)
from perfdoctor.api.quantities import CallSite, Evidence, Missing, Step

from ._shared.wording import in_words_of


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds, as shares of the steady step."""

    min_share: float = 0.05
    """One line to take out, so little is worth it."""
    error_share: float = 0.30
    """A judgement: a third of the step spent on debugging."""


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """What was timed, by its own cost; a switch that is on is no finding."""
    step, calls = evidence.step, evidence.call_sites
    if isinstance(step, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    if isinstance(calls, Missing):
        return cannot_tell(f"calls were not watched: {calls}")
    finding = anomaly_detection(evidence, step, calls, limits)
    if finding is not None:
        return found(finding)
    cost_ms = sum(call.ms_per_step for call in calls if call.kind in _KINDS)
    measured = milliseconds("anomaly_ms", cost_ms, "anomaly detection per step")
    aids = () if isinstance(evidence.debugging, Missing) else evidence.debugging
    if not aids:
        return clear("autograd's anomaly detection takes {anomaly_ms} per step", measured)
    return clear(
        "autograd's anomaly detection takes {anomaly_ms} per step; what {aids} costs cannot be told from one run: time "
        "the job without",
        measured,
        Measurement("aids", " and ".join(aid.name for aid in aids), "text", "switched on"),
    )


_KINDS = ("anomaly_trace", "anomaly_check")
_SPREAD = (0.75, 1.1)
"""Around the measured time: 0.94 and 0.77 of it in the two programs whose truth is known. The first trace through a
line reads its source, so the steps that were watched are dearer. At best the bookkeeping of the traces goes too."""


def anomaly_detection(evidence: Evidence, step: Step, calls: tuple[CallSite, ...], limits: Limits) -> Finding | None:
    """None where it was off, or took less than its least share of the step."""
    traces, checks = ([call for call in calls if call.kind == kind] for kind in _KINDS)
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
        location=location(dearest.site),
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


CHECK = Check(
    code="PD16", name="debugging-left-on", title="debugging that was left on", limits=Limits(), examine=examine
)
