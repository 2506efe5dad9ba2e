"""What the host does while the device has nothing to do, by a trace."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Cost,
    Finding,
    Fix,
    Measurement,
    Outcome,
    Severity,
    clear,
    found,
    location,
    milliseconds,
    present,
    savings,
    share,
)
from perfdoctor.api.quantities import Idle

from .._shared.traced import Traced
from .device_sync import READ_LATER, READ_LATER_RISK

_LAUNCH_SHARE = 0.10
"""Of the step, idle while the host launches: below, it is what every step has at its beginning."""


def in_trace(case: Traced) -> Outcome:
    """Synchronisations after which the queue runs dry, other code, launching."""
    shared = _measured(case)
    findings = present(_sync(case), _other_code(case), _launch_bound(case))
    if findings:
        return found(*findings, measurements=shared)
    return clear(
        "the host keeps the device busy: beside waiting for data and for memory, it leaves it without work for "
        "{launching_ms} per step while it launches, and for {sync_ms} after {syncs:synchronisation}",
        *shared,
    )


def _ms(case: Traced, *causes: Idle) -> float:
    return sum(idle.ms for idle in map(case.activity.idle_by, causes) if idle is not None)


def _measured(case: Traced) -> tuple[Measurement, ...]:
    syncs = case.activity.syncs
    return (
        milliseconds("launching_ms", _ms(case, Idle.LAUNCHING, Idle.OPTIMIZER), "idle while the host launches"),
        milliseconds("sync_ms", _ms(case, Idle.SYNC), "idle after synchronisations, per step"),
        Measurement("syncs", syncs.per_step if syncs else 0.0, "count", "synchronisations per step"),
        Measurement("kernels", case.activity.launches, "count", "kernels per step"),
        share("late_share", case.activity.late_share, "of the kernels launched when the device had run dry"),
        milliseconds("inflation_ms", case.activity.inflation_ms, "of the host's time, taken by recording the trace"),
    )


def _sync(case: Traced) -> Finding | None:
    idled, calls = case.idled(Idle.SYNC), case.activity.syncs
    if idled is None or calls is None:
        return None
    idle, cost = idled
    return Finding(
        id="PD10.device-sync",
        severity=case.severity(cost),
        confidence=Confidence.MEDIUM,
        message="the device has nothing to do for {cost_ms} per step ({cost_share}) after the host has waited for it",
        reasoning="{syncs:synchronisation} per step, most of the time in `{name}`; until then the host was ahead of "
        "the device, and afterwards the queue is empty until it has launched more",
        evidence=(
            *cost.measured("idle after synchronisations, per step"),
            Measurement("syncs", calls.per_step, "count", "synchronisations per step"),
            Measurement("name", calls.name, "text", "the call that takes longest"),
        ),
        location=location(idle.at),
        fix=Fix(
            text="Do not wait for the device in the step: keep values on it, read them every 50 steps, copy with "
            "`non_blocking=True` from pinned memory.",
            code=READ_LATER,
            risk=READ_LATER_RISK,
        ),
        savings=case.at_most(cost.ms, "the device's idle time between a synchronisation and the next work"),
    )


def _other_code(case: Traced) -> Finding | None:
    idled = case.idled(Idle.OTHER)
    if idled is None:
        return None
    idle, cost = idled
    return Finding(
        id="PD10.idle-device",
        severity=case.severity(cost),
        confidence=Confidence.MEDIUM,
        message="the device has nothing to do for {cost_ms} per step ({cost_share}) while the host runs other code",
        reasoning="no operator, no loader and no call of the driver was running then: Python, NumPy, logging, files",
        evidence=(*cost.measured("idle while the host runs other code, per step"), *case.measured()),
        location=location(idle.at),
        fix=Fix(
            text="Move this code out of the step, do it less often, or in a worker."
            + ("" if location(idle.at) else " Recorded with `with_stack=True`, the trace tells the line."),
        ),
        savings=case.at_most(cost.ms, "the device's idle time while the host runs other code"),
    )


def _launch_bound(case: Traced) -> Finding | None:
    """The direction without a size: recording a trace slows the host by as much as this may be."""
    cost = Cost(case.step, _ms(case, Idle.LAUNCHING, Idle.OPTIMIZER))
    if cost.share < _LAUNCH_SHARE:
        return None
    idle = case.activity.idle_by(Idle.LAUNCHING)
    return Finding(
        id="PD10.launch-bound",
        severity=Severity.NOTE,
        confidence=Confidence.LOW,
        message="the device has nothing to do for {cost_ms} per step ({cost_share}) because the host launches its work "
        "too late",
        reasoning="{kernels:kernel} per step, {late_share} of them launched when the device had run dry; recording "
        "the trace took about {inflation_ms} per step of the host's time, so without it the share is smaller",
        evidence=(*cost.measured("idle while the host launches, per step"), *_measured(case)[3:]),
        location=location(idle.at) if idle is not None else None,
        fix=Fix(
            text="Give the device more work per launch: `torch.compile`, CUDA graphs, a larger batch, fused updates.",
            code='model = torch.compile(model, mode="reduce-overhead")',
            risk="Compiling takes its time, and graphs need inputs of fixed shapes.",
        ),
        savings=savings(case.step, 0.0, 0.0, "none: how much of it recording has made is not known", ceiling=cost.ms),
    )
