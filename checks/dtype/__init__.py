"""Data types: arithmetic in a type that this hardware is slow at.

What it looks at
----------------
The types of the operators in the profiled steps, weighted by floating-point operations and time; types of
parameters, batches and autocast; conversions in the step, with their lines; and what the hardware does with a
type. The largest operators that are not float32 are timed in this process in both types.

Why it costs time
-----------------
float64 moves twice the bytes and has half the vector width or less: on the machine this was developed on, matrix
products took 2.2 times and convolutions 6.9 times as long as in float32; consumer GPUs run it at 1/64 rate. float16
without hardware support is emulated: 180 times slower on that CPU, and bfloat16 40 times on one without AVX-512.

Example
-------
    x = torch.from_numpy(numpy_array)     # NumPy's default is float64
    model = model.double()                # "to match the input"

How to fix
----------
Convert the data once, where it enters (`.float()` in the data set), and keep the model in float32; use bfloat16
autocast where the hardware multiplies it natively; on a GPU with tensor cores allow TF32 or use autocast.

When it stays silent
--------------------
When the slow type costs less than 5 % of the step: float64 in a loss, a metric or a small solver is legitimate.
When float32, measured on the job's own operators, would not be faster.

Limits
------
On a CPU the timing of a type is measured; on a GPU it is estimated from peak rates, and says so. Operators inside
compiled graphs are seen as the graph's. LSTM and GRU count as their fused operator where there is one.

References
----------
- Deeplearning4j, "How to debug performance issues", step 7
- pytorch/pytorch#146508: float16 on CPUs without AVX512-FP16
- PyTorch blog, "What every user should know about mixed precision training"
- NVIDIA A100 and H100 data sheets: FP32 19.5 and 67 TFLOP/s, TF32 156 and 494
"""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.causes import in_step, type_cost
from perfdoctor.api.findings import (
    Check,
    Confidence,
    Finding,
    Fix,
    Measurement,
    Outcome,
    Part,
    cannot_tell,
    clear,
    found,
    location,
    milliseconds,
    savings,
    severity,
    share,
)
from perfdoctor.api.quantities import Evidence, Missing, OpProfile, Precision, Site, Step

from .._shared.lines import asked_for
from .._shared.wording import in_words_of
from . import conversions, mixed_precision


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds, as shares of the steady step."""

    min_share: float = 0.05
    """A conversion touches every file of a project; less is not worth that."""
    error_share: float = 0.25
    """A judgement: a quarter of the step is worth a change of type even where it must be tested."""
    scaler_min_share: float = 0.01
    """A gradient scaler that does nothing is one line to remove."""


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """float64, then emulated half precision, then tensor cores left unused, then conversions."""
    step, ops, precision = evidence.step, evidence.ops, evidence.precision
    if isinstance(step, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    if isinstance(ops, Missing):
        return cannot_tell(f"operators were not profiled: {ops}")
    if isinstance(precision, Missing):
        return cannot_tell(f"types were not read: {precision}")
    case = _Case(evidence, step, ops, precision, limits)
    findings = [
        *_slow_type(case, "float64"),
        *_slow_type(case, "float16"),
        *_slow_type(case, "bfloat16"),
        *mixed_precision.findings(evidence, step, ops, precision, limits),
        *conversions.findings(evidence, step, precision, limits),
    ]
    shared = _shared(ops, precision)
    if findings:
        return found(*findings, measurements=shared)
    for dtype, native in (("float16", precision.fp16_native), ("bfloat16", precision.bf16_native)):
        if native is not True and _unpriced_half(case, dtype):
            return cannot_tell(
                f"the operators in {dtype} could not be timed in float32, so what {dtype} costs on this CPU is not "
                "known; run the job in float32 and compare"
            )
    timed = [] if evidence.on_cuda else _timed(case)
    return clear(
        "{float32_share} of the operators' time is in float32, {float64_share} in float64, {half_share} in half "
        "precision"
        + "".join(f"; float32 would save at most {{{one.name}}} of that in {dtype}" for dtype, one in timed),
        *shared,
        *(one for _, one in timed),
    )


def _timed(case: _Case) -> list[tuple[str, Measurement]]:
    """What float32 would save of a type in which the job does much, timed here: too little for a finding."""
    costs = [(dtype, type_cost(case.step, case.ops, dtype)) for dtype in ("float64", "float16", "bfloat16")]
    return [
        (dtype, milliseconds(f"{dtype}_saved", cost.high_ms, f"saved by float32 instead of {dtype}, at most"))
        for dtype, cost in costs
        if cost.ratio is not None and cost.cost_ms / case.step.step_ms >= case.limits.min_share
    ]


@dataclass(frozen=True, slots=True)
class _Case:
    evidence: Evidence
    step: Step
    ops: OpProfile
    precision: Precision
    limits: Limits


def _shared(ops: OpProfile, precision: Precision) -> tuple[Measurement, ...]:
    total = max(ops.self_ms_per_step, 1e-9)
    half = ops.self_ms("float16") + ops.self_ms("bfloat16")
    kinds = ", ".join(dtype for dtype, _ in precision.parameter_dtypes[:2])
    return (
        share("float32_share", ops.self_ms("float32") / total, "operator time in float32"),
        share("float64_share", ops.self_ms("float64") / total, "operator time in float64"),
        share("half_share", half / total, "operator time in half precision"),
        Measurement("parameters", kinds or "unknown", "text", "parameters"),
    )


# -- a type that is slow here -----------------------------------------------------------------------------


def _slow_type(case: _Case, dtype: str) -> list[Finding]:
    """float64, or half precision that is emulated: what float32 would save, by measured timings."""
    step, limits = case.step, case.limits
    if case.evidence.on_cuda:
        return _slow_type_on_cuda(case, dtype)
    timing = type_cost(step, case.ops, dtype)
    cost_share = timing.ceiling_ms / step.step_ms
    if min(timing.sure_ms / step.step_ms, cost_share) < limits.min_share or not timing.is_dear:
        return []
    if dtype != "float64" and timing.ratio is None:
        return []
    ratio = timing.ratio
    site = _cause(case, dtype) or _first_line(case, dtype)
    flops = case.ops.flops(dtype) / max(case.ops.flops(), 1.0)
    return [
        Finding(
            id=f"PD07.{dtype}" if dtype == "float64" else f"PD07.{dtype}-emulated",
            severity=severity(cost_share, limits.min_share, limits.error_share),
            confidence=Confidence.HIGH if timing.timed else Confidence.MEDIUM,
            message=f"{{cost_ms}} of each step is arithmetic in {dtype}, {{flop_share}} of all floating-point "
            "operations" + ("" if ratio is None else "; in float32 the same operators run {ratio} as fast"),
            reasoning=_why(case, dtype),
            evidence=(
                milliseconds("cost_ms", timing.cost_ms, f"operators in {dtype} per step"),
                share("flop_share", flops, "of the floating-point operations"),
                *((Measurement("ratio", ratio, "ratio", "over float32, measured here"),) if ratio else ()),
                *_shared(case.ops, case.precision)[3:],
            ),
            location=location(site),
            fix=_fix(case, dtype),
            savings=savings(
                step,
                Part.COMPUTE,
                ceiling=timing.ceiling_ms,
                low=timing.low_ms,
                high=timing.high_ms,
                method=_method(timing.timed, dtype),
            ),
        )
    ]


def _unpriced_half(case: _Case, dtype: str) -> bool:
    """Whether much of a CPU's step is in a half type that nothing timed."""
    share_of_step = in_step(case.step, case.ops, case.ops.self_ms(dtype)) / case.step.step_ms
    timed = any(timing.dtype == dtype for timing in case.ops.timings)
    return not case.evidence.on_cuda and not timed and share_of_step >= case.limits.min_share


def _method(timed: int, dtype: str) -> str:
    if not timed:
        return "half the bytes: operators bound by memory take 1/2 to 1/1.4 of the time"
    text = f"the {timed} largest operators timed here in {dtype} and in float32"
    return text + ("; the others by their bytes" if dtype == "float64" else "")


def _cause(case: _Case, dtype: str) -> Site | None:
    """The line that made torch's default type or the model float64."""
    precision = case.precision
    asked = dtype == "float64" and (
        precision.default_dtype == "float64" or any(kind == "float64" for kind, _ in precision.parameter_dtypes)
    )
    return precision.double_site if asked else None


def _first_line(case: _Case, dtype: str) -> Site | None:
    """The dearest line that makes such tensors, else the dearest that converts others to them."""
    if isinstance(case.evidence.call_sites, Missing):
        return None
    lines = [call for call in case.evidence.call_sites if call.kind == dtype]
    into = [call for call in case.evidence.call_sites if call.kind == "convert" and call.detail.endswith(f"->{dtype}")]
    return next((call.site for some in (lines, into) for call in asked_for(case.evidence, some)), None)


def _why(case: _Case, dtype: str) -> str:
    precision = case.precision
    if dtype != "float64":
        return (
            f"this CPU has no arithmetic for {dtype} that oneDNN could use, so each operator is emulated or converts "
            "back and forth"
        )
    if precision.default_dtype == "float64":
        return "torch's default type is float64: something called `torch.set_default_dtype(torch.float64)`"
    if any(kind == "float64" for kind, _ in precision.parameter_dtypes):
        where = "the parameters are float64"
        if "float64" in precision.batch_dtypes:
            return where + ", and so are the batches, as NumPy makes them by default"
        return where + " while the default type is float32, so the model was converted"
    if "float64" in precision.batch_dtypes:
        return "the batches arrive in float64, as NumPy makes them by default, and the parameters are float32"
    return "parameters and batches are float32, so a part of the model computes in float64 on its own"


def _fix(case: _Case, dtype: str) -> Fix:
    if dtype != "float64":
        return Fix(
            text=f"Train in float32 on this CPU; {dtype} pays only where the hardware multiplies it.",
            code="with torch.autocast('cpu', enabled=False):\n    loss = model(batch)",
            risk="Twice the memory for activations.",
            remedies=("dtype.float32",),
        )
    precision = case.precision
    risk = "Rounding changes: 7 significant digits instead of 16. Keep float64 where the science needs it."
    if precision.default_dtype == "float64":
        code = "torch.set_default_dtype(torch.float32)"
    elif any(kind == "float64" for kind, _ in precision.parameter_dtypes):
        code = in_words_of(
            case.evidence.job,
            "model = model.float()\nbatch = batch.float()  # in the data set, once",
            lightning="trainer = Trainer(..., precision='32-true')  # and no model.double()",
        )
    else:
        code = "x = x.float()  # before the arithmetic; or dtype=torch.float32 where the tensor is made"
    return Fix(
        text="Convert data where it enters and keep the model in float32.",
        code=code,
        risk=risk,
        remedies=("dtype.float32",),
    )


def _slow_type_on_cuda(case: _Case, dtype: str) -> list[Finding]:
    """On a GPU the host's operator times say nothing: weigh by floating-point operations and device time."""
    busy = case.ops.device_busy_ms
    total = case.ops.flops()
    if dtype != "float64" or busy is None or total <= 0:
        return []
    flop_share = case.ops.flops(dtype) / total
    # Double precision runs at half rate at best, so its share of time is at least its share of operations.
    cost = min(busy, case.step.step_ms) * flop_share
    cost_share = cost / case.step.step_ms
    if cost_share < case.limits.min_share:
        return []
    return [
        Finding(
            id="PD07.float64",
            severity=severity(cost_share, case.limits.min_share, case.limits.error_share),
            confidence=Confidence.MEDIUM,
            message="{flop_share} of the floating-point operations on the GPU are float64, at least {cost_ms} a step",
            reasoning=_why(case, dtype),
            evidence=(
                share("flop_share", flop_share, "of the floating-point operations"),
                milliseconds("cost_ms", cost, "of device time per step, at least"),
            ),
            location=location(_cause(case, dtype) or _first_line(case, dtype)),
            fix=_fix(case, dtype),
            savings=savings(
                case.step,
                Part.COMPUTE,
                ceiling=cost,
                low=0.5 * cost,
                high=0.95 * cost,
                method="float64 runs at 1/2 (data centre) to 1/64 (consumer) of the float32 rate",
            ),
        )
    ]


CHECK = Check(code="PD07", name="dtype", title="data types", limits=Limits(), examine=examine)
