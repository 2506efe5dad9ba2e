"""What switching oneDNN off costs: the job's own operators, by what they were timed to take with it and without.

Two checks ask. Off in the whole process is the backend's business (PD01); off inside the forward pass, by a `with`
that switches more off than it says, is PD02's. Each is silent where the other speaks.
"""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.causes import in_step
from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, location, savings
from perfdoctor.api.quantities import (
    Backend,
    Evidence,
    LibraryTiming,
    LibraryUse,
    Missing,
    Op,
    OpProfile,
    Recurrent,
    Site,
    Step,
)

_NATIVE_SAVES = (0.3, 0.75)
"""Of native convolutions whose timing in oneDNN could not be timed; a speed-up of 3.4x was measured on Zen 4."""
_SPREAD = 0.15
"""Of a measured timing: it is taken from single operators with warm caches. Three programs of 1.3x to 2.1x, two with
convolutions and one with an LSTM, won more than the upper end in most runs."""
_SLOWER = 1.1
"""Native operators are worth a finding when oneDNN beats them by a tenth, measured."""


@dataclass(frozen=True, slots=True)
class _Saved:
    """Milliseconds of an ordinary step that oneDNN would save."""

    low_ms: float
    high_ms: float
    times: float | None
    """Native over oneDNN, measured; None when nothing could be timed."""


def onednn_off(
    name: str,
    evidence: Evidence,
    step: Step,
    backend: Backend,
    *,
    min_share: float,
    error_share: float,
    message: str,
    reasoning: str,
    at: Site | Missing | None,
    more: tuple[Measurement, ...] = (),
) -> Finding | None:
    """What either check says; None where oneDNN was on, or would save less than `min_share` of the step."""
    saved = _saved(evidence, step, backend)
    cost, measured = Cost(step, saved.high_ms), saved.times is not None
    if cost.share < min_share or (saved.times is not None and saved.times < _SLOWER):
        return None
    ratio = () if saved.times is None else (Measurement("ratio", saved.times, "ratio", "native over oneDNN, measured"),)
    return Finding(
        id=name,
        severity=cost.severity(min_share, error_share),
        confidence=Confidence.HIGH if measured else Confidence.LOW,
        message=message + ": up to {cost_ms} per step" + ("; speed-up {ratio} in its operators" * measured),
        reasoning=reasoning,
        evidence=(*cost.measured("what oneDNN would save per step, at most"), *ratio, *more),
        location=location(at),
        fix=Fix(
            text="Leave oneDNN on: call `flags()` with `enabled=True`, because its default switches oneDNN off.",
            code="with torch.backends.mkldnn.flags(enabled=True, deterministic=True):\n    loss = model(batch)",
            risk="Sums are taken in another order, so the last digits of results differ.",
            remedies=("onednn.on",),
        ),
        savings=savings(
            step,
            saved.low_ms,
            saved.high_ms,
            "the job's own operators timed in its process with oneDNN off and on"
            if measured
            else "not timed in this run; elsewhere oneDNN's convolutions had a speed-up of 1.4x to 4x",
        ),
    )


def _saved(evidence: Evidence, step: Step, backend: Backend) -> _Saved:
    """Nothing where it was on."""
    ops, use = evidence.ops, evidence.library_use
    if isinstance(ops, Missing) or not backend.onednn_built:
        return _Saved(0.0, 0.0, None)
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
        return _Saved(max(0.0, low), max(0.0, high), native / in_onednn)
    if not backend.onednn_enabled:
        spent = in_step(step, ops, sum(op.self_ms_per_step for op in ops.ops if _is_native(op)))
        low, high = (part * spent for part in _NATIVE_SAVES)
    return _Saved(low, high, None)


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
