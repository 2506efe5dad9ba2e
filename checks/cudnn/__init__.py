"""cuDNN, and on a CPU oneDNN: whether the fast library does the convolutions, recurrent layers and attention.

What it looks at
----------------
Which operator did each convolution and recurrent layer of the profiled steps: the library's (`cudnn_convolution`,
`mkldnn_convolution`) or torch's own (`thnn_conv2d`, `slow_conv3d`), and what torch would choose between the steps;
whether the library was on inside the forward pass; cuDNN's settings, shapes of batches and memory formats; attention
by torch's fused kernel, by its math path, or made by hand of two products and a softmax.

Why it costs time
-----------------
Native convolutions were measured 3.4 times slower than oneDNN's, a native LSTM 1.5 to 4 times; on a GPU cuDNN is 3 to
10 times faster. Attention made by hand writes its matrix of scores to memory several times, forward and backward: on
a CPU it was measured 1.3 to 2.7 times slower than the fused kernel, from 128 positions to 1024. Images whose channels
come first in memory: on a CPU a max pooling forward and backward took 7 times as long so, a batch norm 2.6 times, and
convolutions from 1.02 (256 channels of 14 x 14) to 1.7 times (8 channels of 128 x 128).

Example
-------
    with torch.backends.mkldnn.flags(deterministic=True):   # enabled=False is this function's default!
        loss = model(batch)                                 # and that of torch.backends.cudnn.flags
    weights = (q @ k.transpose(-2, -1) / math.sqrt(d)).softmax(-1)
    y = weights @ v

How to fix
----------
Pass enabled=True to `flags()`. Call `torch.nn.functional.scaled_dot_product_attention`, and `nn.MultiheadAttention`
with need_weights=False. Keep images and model in the channels-last format where that was timed to be faster. On a GPU
use the cuDNN that torch brings along, `benchmark = True` for fixed shapes only, and channels-last tensors in half
precision.

When it stays silent
--------------------
When the fused kernel, timed in this job with its shapes, mask and dropout, is not faster: short sequences, bfloat16
on some CPUs, and dropout on a CPU, for which torch has no fused kernel. When oneDNN is off in the whole process: that
is PD01's. What channels last would save a CPU is a number beside what is clear: the layout is torch's own choice, and
`check --trial --try layout.channels-last` tells what it is worth. When torch's own kernel was taken for the type
(float64): that is PD07's. Small convolutions and depthwise ones are native on purpose.

Limits
------
On a CPU timings are measured on the job's own shapes; large attention is replayed in part. On a GPU nothing is timed
both ways, and savings are ranges from elsewhere. Attention in compiled graphs, and made of two-dimensional products,
is not recognised. Whether the weights of attention are used elsewhere is not seen.

References
----------
- Deeplearning4j, "How to debug performance issues", step 2
- Dao et al., "FlashAttention: fast and memory-efficient exact attention with IO-awareness" (2022)
- PyTorch performance tuning guide: cuDNN benchmark, channels last
- pytorch#2759: a new algorithm search for every new shape
- speechbrain#294: benchmark mode on fixed shapes
"""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.causes import in_step
from perfdoctor.api.findings import (
    Check,
    Finding,
    Measurement,
    Outcome,
    cannot_tell,
    clear,
    found,
    location,
    not_applicable,
    share,
)
from perfdoctor.api.quantities import Attention, Backend, Evidence, LibraryUse, Missing, OpProfile, Site, Step

from .._shared import onednn
from . import attention, channels_last
from .on_gpu import Case


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds, as shares of the steady step."""

    min_share: float = 0.05
    """What a fix must be predicted to save, in the middle of its range; below, one line of code is not worth it."""
    error_share: float = 0.25
    """A judgement: a quarter of the step for a line of code."""
    convolution_share: float = 0.50
    """Share of the step in convolutions from which on trying cuDNN's algorithms is advised."""


_LIBRARIES = (
    ("cudnn", "cuDNN"),
    ("miopen", "MIOpen"),
    ("mkldnn", "oneDNN"),
    ("nnpack", "NNPACK"),
    ("depthwise", "torch's depthwise kernel"),
)
"""Parts of the names of operators, and whose they are."""


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """The library of convolutions and recurrent layers, then attention."""
    step, ops, use, backend = evidence.step, evidence.ops, evidence.library_use, evidence.backend
    if isinstance(step, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    if isinstance(ops, Missing):
        return cannot_tell(f"operators were not profiled: {ops}")
    if isinstance(use, Missing):
        return cannot_tell(f"which library did the work is not known: {use}")
    if isinstance(backend, Missing):
        return cannot_tell(f"what torch computes with was not read: {backend}")
    if not (use.convolutions or use.recurrent or use.attention):
        if evidence.job.compiled:
            return cannot_tell("the model is compiled, and its graphs do not show convolutions or attention by name")
        return not_applicable("the step has no convolution, no recurrent layer and no attention")
    findings = attention.findings(evidence, step, ops, use, (limits.min_share, limits.error_share))
    if evidence.on_cuda:
        if not isinstance(evidence.cudnn, Missing) and not backend.hip:
            case = Case(
                evidence,
                step,
                use,
                evidence.cudnn,
                limits.min_share,
                limits.error_share,
                limits.convolution_share,
            )
            findings = [*case.findings(), *findings]
        elif isinstance(evidence.cudnn, Missing) and not findings and (use.convolutions or use.recurrent):
            return cannot_tell(f"cuDNN's settings were not read: {evidence.cudnn}")
    else:
        findings = [*_onednn_off_inside(evidence, step, backend, limits), *findings]
    shared = _shared(evidence, step, ops, use)
    if findings:
        return found(*findings, measurements=shared)
    untimed = [row for row in use.attention if row.made != "fused" and isinstance(row.timing, Missing)]
    untimed_ms = in_step(step, ops, sum(row.ms_per_step for row in untimed))
    if not use.on_device and untimed_ms / step.step_ms >= limits.min_share:
        return cannot_tell(f"attention that is not fused takes much of the step, and {untimed[0].timing}")
    unseen = "; inside compiled functions nothing was seen" if evidence.job.compiled else ""
    return clear(_line(use) + channels_last.words(shared) + unseen, *shared)


def _onednn_off_inside(evidence: Evidence, step: Step, backend: Backend, limits: Limits) -> list[Finding]:
    """On between the steps, off in them."""
    if not backend.onednn_between_steps:
        return []
    saved = onednn.cost(evidence, step, backend)
    if not onednn.is_worth(saved, step, limits):
        return []
    where = "where convolutions ran" if backend.onednn_enabled else "at the end of a forward"
    return [
        onednn.finding(
            "PD02.onednn-disabled",
            step,
            saved,
            limits,
            message="oneDNN is switched off inside the forward pass, so {cost_ms} a step goes to torch's own kernels",
            reasoning=f"`torch.backends.mkldnn.enabled` was True between the steps, and False {where}; `flags()` "
            "switches it off unless it is called with enabled=True",
            location=location(_line_switched_off(evidence)),
        )
    ]


def _line_switched_off(evidence: Evidence) -> Site | None:
    """Who switched it off; else a convolution that ran meanwhile, else the costliest line of the forward pass."""
    calls = () if isinstance(evidence.call_sites, Missing) else evidence.call_sites
    lines = () if isinstance(evidence.hot_lines, Missing) else evidence.hot_lines
    about = [call for call in calls if call.detail == "onednn"]
    off = [call.site for kind in ("library_flags", "library_off") for call in about if call.kind == kind]
    return next(iter([*off, *(line.site for line in lines if line.part == "forward")]), None)


# -- what clears it ---------------------------------------------------------------------------------------


def _shared(evidence: Evidence, step: Step, ops: OpProfile, use: LibraryUse) -> tuple[Measurement, ...]:
    """Who did what, and for how much of the step."""
    kinds = (("convolution", use.convolutions), ("recurrent", use.recurrent), ("attention", use.attention))
    found: list[Measurement] = []
    for name, rows in kinds:
        profiled = sum(row.ms_per_step for row in rows)
        spent = min(step.step_ms, profiled) if use.on_device else in_step(step, ops, profiled)
        found += [
            Measurement(f"{name}_calls", round(sum(row.calls_per_step for row in rows), 1), "count", f"{name} a step"),
            share(f"{name}_share", spent / step.step_ms if step.step_ms > 0 else 0.0, "of the step"),
        ]
    found += channels_last.measurements(evidence, step, use)
    found.append(Measurement("by", _by(evidence, use), "text", "done by"))
    found.append(Measurement("attention_by", _attention_by(use), "text", "attention"))
    return tuple(found)


def _by(evidence: Evidence, use: LibraryUse) -> str:
    """`12 oneDNN, 2 torch's own kernels (float64: see PD07)`, by calls a step."""
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


def _line(use: LibraryUse) -> str:
    """Who did what, and for how long: what the guide's log of cuDNN is for."""
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


CHECK = Check(
    code="PD02",
    name="cudnn",
    title="cuDNN (on a CPU: oneDNN), attention",
    limits=Limits(),
    examine=examine,
)
