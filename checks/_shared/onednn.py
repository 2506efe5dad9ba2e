"""What switching oneDNN off costs: the job's own operators, by what they were timed to take with it and without.

Two checks ask. Off in the whole process is the backend's business (PD01); off inside the forward pass, by a `with`
that switches more off than it says, is PD02's. Each is silent where the other speaks.
"""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.causes import in_step
from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Fix,
    Location,
    Measurement,
    Part,
    milliseconds,
    savings,
    severity,
    share,
)
from perfdoctor.api.quantities import (
    Backend,
    Evidence,
    LibraryTiming,
    LibraryUse,
    Missing,
    Op,
    OpProfile,
    Recurrent,
    Step,
)

from .limits import CostLimits

_NATIVE_SAVES = (0.3, 0.75)
"""Of native convolutions whose timing in oneDNN could not be timed; 3.4 times faster was measured on Zen 4."""
_SPREAD = 0.15
"""Of a measured timing: it is taken from single operators with warm caches. Three programs of 1.3x to 2.1x, two with
convolutions and one with an LSTM, won more than the upper end in most runs."""
_SLOWER = 1.1
"""Native operators are worth a finding when oneDNN beats them by a tenth, measured."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Per step, in milliseconds of an ordinary one."""

    low_ms: float
    high_ms: float
    times: float | None
    """Native over oneDNN, measured; None when nothing could be timed."""


def cost(evidence: Evidence, step: Step, backend: Backend) -> Cost:
    """What oneDNN would save; nothing where it was on."""
    ops, use = evidence.ops, evidence.library_use
    if isinstance(ops, Missing) or not backend.onednn_built:
        return Cost(0.0, 0.0, None)
    low = high = native = in_onednn = 0.0
    for spent, off, on, calls in [*_operators(step, ops, backend, use), *_recurrent(step, ops, use)]:
        # By the ratio, where the job slows all that it runs; by the time itself, where only native operators meet it:
        # their buffers are large, and pages that the job faults in anew are at hand in a repetition.
        slowed, plain = spent * on / off, on * calls
        low += spent - max(slowed, plain) * (1 + _SPREAD)
        high += spent - min(slowed, plain) * (1 - _SPREAD)
        native += off * calls
        in_onednn += on * calls
    if in_onednn > 0:
        return Cost(max(0.0, low), max(0.0, high), native / in_onednn)
    if not backend.onednn_enabled:
        spent = in_step(step, ops, sum(op.self_ms_per_step for op in ops.ops if _is_native(op)))
        low, high = (part * spent for part in _NATIVE_SAVES)
    return Cost(low, high, None)


def is_worth(saved: Cost, step: Step, limits: CostLimits) -> bool:
    """Whether to say anything."""
    return saved.high_ms / step.step_ms >= limits.min_share and (saved.times is None or saved.times >= _SLOWER)


def finding(
    name: str,
    step: Step,
    saved: Cost,
    limits: CostLimits,
    *,
    message: str,
    reasoning: str,
    more: tuple[Measurement, ...] = (),
    location: Location | None = None,
) -> Finding:
    """What either check says: how much, and that leaving it on is the fix."""
    measured = saved.times is not None
    ratio = () if saved.times is None else (Measurement("ratio", saved.times, "ratio", "native over oneDNN, measured"),)
    return Finding(
        id=name,
        severity=severity(saved.high_ms / step.step_ms, limits.min_share, limits.error_share),
        confidence=Confidence.HIGH if measured else Confidence.LOW,
        message=message + ("; with it the same operators run {ratio} as fast" if measured else ""),
        reasoning=reasoning,
        evidence=(
            milliseconds("cost_ms", saved.high_ms, "what oneDNN would save per step, at most"),
            share("cost_share", saved.high_ms / step.step_ms, "of the step"),
            *ratio,
            *more,
        ),
        location=location,
        fix=Fix(
            text="Leave oneDNN on, and pass enabled=True to `flags()`, which switches it off otherwise.",
            code="with torch.backends.mkldnn.flags(enabled=True, deterministic=True):\n    loss = model(batch)",
            risk="Sums are taken in another order, so the last digits of results differ.",
            remedies=("onednn.on",),
        ),
        savings=savings(
            step,
            Part.COMPUTE,
            ceiling=saved.high_ms,
            low=saved.low_ms,
            high=saved.high_ms,
            method="the job's own operators timed in its process with oneDNN off and on"
            if measured
            else "not timed in this run: native convolutions were measured 1.4 to 4 times slower elsewhere",
        ),
    )


def _is_native(op: Op) -> bool:
    return ("slow_conv" in op.name or "thnn_conv" in op.name) and op.dtype in ("float32", "bfloat16")


def _operators(
    step: Step, ops: OpProfile, backend: Backend, use: LibraryUse | Missing
) -> list[tuple[float, float, float, float]]:
    """(milliseconds in the step, one call without oneDNN, one with it, calls)."""
    rows = () if isinstance(use, Missing) else use.convolutions
    by_onednn = {f"{list(row.input_shape)} {list(row.weight_shape)}" for row in rows if "mkldnn" in row.kernel}
    found = []
    for timing in backend.onednn_timings:
        op = next((op for op in ops.ops if _is(timing, op)), None)
        if op is None or timing.native_milliseconds <= 0 or any(shapes in op.shapes for shapes in by_onednn):
            continue
        each = op.total_ms_per_step / max(op.calls_per_step, 1e-9)
        # With oneDNN on, a native convolution may be one it declined: then this one ran in oneDNN all the same.
        if backend.onednn_enabled and each < (timing.native_milliseconds + timing.onednn_milliseconds) / 2:
            continue
        spent = in_step(step, ops, op.total_ms_per_step)
        found.append((spent, timing.native_milliseconds, timing.onednn_milliseconds, op.calls_per_step))
    return found


def _is(timing: LibraryTiming, op: Op) -> bool:
    return (timing.name, timing.shapes, timing.dtype) == (op.name, op.shapes, op.dtype)


def _recurrent(step: Step, ops: OpProfile, use: LibraryUse | Missing) -> list[tuple[float, float, float, float]]:
    """The same of recurrent layers, which only ran natively because oneDNN was off."""
    layers: tuple[Recurrent, ...] = () if isinstance(use, Missing) else use.recurrent
    return [
        (in_step(step, ops, layer.ms_per_step), layer.native_ms, layer.onednn_ms, layer.calls_per_step)
        for layer in layers
        if layer.native and layer.native_ms > 0 and layer.onednn_ms > 0
    ]
