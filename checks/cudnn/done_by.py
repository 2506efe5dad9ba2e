"""Which library did the convolutions, recurrent layers and attention, for how much of the step, and in which layout."""

from __future__ import annotations

from perfdoctor.api.causes import in_step
from perfdoctor.api.findings import Measurement, share
from perfdoctor.api.quantities import Attention, Evidence, LibraryUse, Missing, OpProfile, Step

_LIBRARIES = (
    ("cudnn", "cuDNN"),
    ("miopen", "MIOpen"),
    ("mkldnn", "oneDNN"),
    ("nnpack", "NNPACK"),
    ("depthwise", "torch's depthwise kernel"),
)
"""Parts of the names of operators, and whose they are."""


def done_by(use: LibraryUse) -> str:
    """Who did what, and for how long, as a template: what the guide's log of cuDNN is for."""
    parts = []
    if use.convolutions:
        parts.append("{convolution_calls:convolution takes|convolutions take} {convolution_share} of the step")
    if use.recurrent:
        parts.append("{recurrent_calls:call} of recurrent layers {recurrent_share}")
    line = ", ".join(parts) + (", done by: {by}" if parts else "")
    if use.attention:
        line += "; " if line else ""
        line += "{attention_calls:attention takes|attentions take} {attention_share} of the step: {attention_by}"
    return line


def measured(evidence: Evidence, step: Step, ops: OpProfile, use: LibraryUse) -> tuple[Measurement, ...]:
    """What fills it."""
    kinds = (("convolution", use.convolutions), ("recurrent", use.recurrent), ("attention", use.attention))
    found: list[Measurement] = []
    for name, rows in kinds:
        profiled, calls = sum(row.ms_per_step for row in rows), sum(row.calls_per_step for row in rows)
        spent = min(step.step_ms, profiled) if use.on_device else in_step(step, ops, profiled)
        found += [
            Measurement(f"{name}_calls", round(calls, 1), "count", f"{name} per step"),
            share(f"{name}_share", spent / step.step_ms if step.step_ms > 0 else 0.0, "of the step"),
        ]
    found.append(Measurement("by", _by(evidence, use), "text", "done by"))
    found.append(Measurement("attention_by", _attention_by(use), "text", "attention"))
    return tuple(found)


def _by(evidence: Evidence, use: LibraryUse) -> str:
    """`12 oneDNN, 2 torch's own kernels (float64: see PD07)`, by calls per step."""
    rows = [(row.kernel, row.native, row.dtype, row.calls_per_step) for row in use.convolutions]
    rows += [(row.kernel, row.native, row.dtype, row.calls_per_step) for row in use.recurrent]
    return _counted([(_library(evidence, kernel, native, dtype), count) for kernel, native, dtype, count in rows])


def _counted(names: list[tuple[str, float]]) -> str:
    calls: dict[str, float] = {}
    for name, count in names:
        calls[name] = calls.get(name, 0.0) + count
    return ", ".join(f"{count:.0f} {name}" for name, count in sorted(calls.items(), key=lambda one: -one[1])) or "none"


def _library(evidence: Evidence, kernel: str, native: bool, dtype: str) -> str:
    for part, name in _LIBRARIES:
        if part in kernel:
            return name
    if kernel == "" and not evidence.on_cuda:
        return "oneDNN"
    if native:
        return "torch's own kernels" + (f" ({dtype}: see PD07)" if dtype in ("float64", "float16") else "")
    return kernel or "a kernel without a name"


def _attention_by(use: LibraryUse) -> str:
    names = []
    for row in use.attention:
        name = {"fused": "fused", "math": "unfused", "by hand": "by hand"}[row.made]
        why = "" if row.made == "fused" or use.on_device else _why_it_stays(row)
        names.append((name + why, row.calls_per_step))
    return _counted(names)


def _why_it_stays(row: Attention) -> str:
    if isinstance(row.timing, Missing):
        return " (not timed)"
    if row.dropout:
        return " (no fused kernel for dropout on a CPU)"
    return "" if row.timing.fused_ms < row.timing.now_ms else " (the fused kernel is slower)"
