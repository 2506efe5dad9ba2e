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
On a CPU the price of a type is measured; on a GPU it is estimated from peak rates, and says so. Operators inside
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

from perfdoctor.api import (
    CallSite,
    Check,
    Confidence,
    Evidence,
    Finding,
    Fix,
    Measurement,
    Missing,
    OpProfile,
    Outcome,
    Part,
    Precision,
    Site,
    Step,
    cannot_tell,
    clear,
    found,
    in_step,
    location,
    milliseconds,
    savings,
    severity,
    share,
    type_cost,
)

from ._wording import in_words_of


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds, as shares of the steady step."""

    min_share: float = 0.05
    """A conversion touches every file of a project; less is not worth that."""
    error_share: float = 0.25
    """A judgement: a quarter of the step is worth a change of type even where it must be tested."""
    scaler_min_share: float = 0.01
    """A gradient scaler that does nothing is one line to remove."""


_FP32_TFLOPS = {(7, 0): 15.7, (7, 5): 8.1, (8, 0): 19.5, (8, 6): 29.8, (8, 9): 82.6, (9, 0): 67.0, (10, 0): 80.0}
"""Peak float32 rate without tensor cores, by compute capability, from NVIDIA's data sheets."""
_TENSOR_SAVES = (0.3, 0.7)
"""Share of float32 matrix time that TF32 or autocast saves: "3x end to end" at best, less when memory-bound."""


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
        *_unused_tensor_cores(case),
        *_useless_scaler(case),
        *_conversions(case),
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
    priced = [] if evidence.on_cuda else _priced(case)
    return clear(
        "{float32_share} of the operators' time is in float32, {float64_share} in float64, {half_share} in half "
        "precision"
        + "".join(f"; float32 would save at most {{{one.name}}} of that in {dtype}" for dtype, one in priced),
        *shared,
        *(one for _, one in priced),
    )


def _priced(case: _Case) -> list[tuple[str, Measurement]]:
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
    """float64, or half precision that is emulated: what float32 would save, by measured prices."""
    step, limits = case.step, case.limits
    if case.evidence.on_cuda:
        return _slow_type_on_cuda(case, dtype)
    price = type_cost(step, case.ops, dtype)
    cost_share = price.ceiling_ms / step.step_ms
    if min(price.sure_ms / step.step_ms, cost_share) < limits.min_share or not price.is_dear:
        return []
    if dtype != "float64" and price.ratio is None:
        return []
    ratio = price.ratio
    site = _cause(case, dtype) or _first_line(case, dtype)
    flops = case.ops.flops(dtype) / max(case.ops.flops(), 1.0)
    return [
        Finding(
            id=f"PD07.{dtype}" if dtype == "float64" else f"PD07.{dtype}-emulated",
            severity=severity(cost_share, limits.min_share, limits.error_share),
            confidence=Confidence.HIGH if price.priced else Confidence.MEDIUM,
            message=f"{{cost_ms}} of each step is arithmetic in {dtype}, {{flop_share}} of all floating-point "
            "operations" + ("" if ratio is None else "; in float32 the same operators run {ratio} as fast"),
            reasoning=_why(case, dtype),
            evidence=(
                milliseconds("cost_ms", price.cost_ms, f"operators in {dtype} per step"),
                share("flop_share", flops, "of the floating-point operations"),
                *((Measurement("ratio", ratio, "ratio", "over float32, measured here"),) if ratio else ()),
                *_shared(case.ops, case.precision)[3:],
            ),
            location=location(site),
            fix=_fix(case, dtype),
            savings=savings(
                step,
                Part.COMPUTE,
                ceiling=price.ceiling_ms,
                low=price.low_ms,
                high=price.high_ms,
                method=_method(price.priced, dtype),
            ),
        )
    ]


def _unpriced_half(case: _Case, dtype: str) -> bool:
    """Whether much of a CPU's step is in a half type that nothing priced."""
    share_of_step = in_step(case.step, case.ops, case.ops.self_ms(dtype)) / case.step.step_ms
    priced = any(price.dtype == dtype for price in case.ops.prices)
    return not case.evidence.on_cuda and not priced and share_of_step >= case.limits.min_share


def _method(priced: int, dtype: str) -> str:
    if not priced:
        return "half the bytes: operators bound by memory take 1/2 to 1/1.4 of the time"
    text = f"the {priced} largest operators timed here in {dtype} and in float32"
    return text + ("; the others by their bytes" if dtype == "float64" else "")


def _cause(case: _Case, dtype: str) -> Site | None:
    """The line that made torch's default type or the model float64."""
    precision = case.precision
    asked = dtype == "float64" and (
        precision.default_dtype == "float64" or any(kind == "float64" for kind, _ in precision.parameter_dtypes)
    )
    return precision.double_site if asked else None


def _first_line(case: _Case, dtype: str) -> Site | None:
    if isinstance(case.evidence.call_sites, Missing):
        return None
    kinds = {"float64": "float64"}
    lines = [call for call in case.evidence.call_sites if call.kind == kinds.get(dtype, "")]
    return lines[0].site if lines else None


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
        code = "model = model.float()\nbatch = batch.float()  # in the data set, once"
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


# -- tensor cores, scalers, conversions -------------------------------------------------------------------


def _unused_tensor_cores(case: _Case) -> list[Finding]:
    precision = case.precision
    capability = precision.compute_capability
    if not case.evidence.on_cuda or capability is None or capability < (7, 0) or precision.tf32_matmul:
        return []
    rate = next((r for c, r in sorted(_FP32_TFLOPS.items(), reverse=True) if c <= capability), None)
    flops = case.ops.flops("float32")
    if rate is None or precision.autocast_dtype:
        return []
    cost = min(flops / (rate * 1e12) * 1e3, case.ops.device_busy_ms or case.step.step_ms, case.step.step_ms)
    cost_share = cost / case.step.step_ms
    if cost_share < case.limits.min_share:
        return []
    low, high = _TENSOR_SAVES
    tf32 = capability >= (8, 0)
    return [
        Finding(
            id="PD07.tensor-cores-unused",
            severity=severity(cost_share * high, case.limits.min_share, case.limits.error_share),
            confidence=Confidence.MEDIUM,
            message="the matrix arithmetic of a step takes at least {cost_ms} in float32, which the GPU's tensor "
            "cores do not do",
            reasoning="neither autocast nor TF32 was on in the forward pass, and the device has compute capability "
            f"{capability[0]}.{capability[1]}",
            evidence=(
                milliseconds("cost_ms", cost, "float32 matrix arithmetic per step at peak rate"),
                Measurement("flops", flops, "flops", "float32 operations per step"),
            ),
            fix=Fix(
                text="Use autocast" + (", or allow TF32 in matrix products." if tf32 else "."),
                code=in_words_of(
                    case.evidence.job,
                    "torch.set_float32_matmul_precision('high')  # TF32\n" * tf32
                    + "with torch.autocast('cuda', dtype=torch.bfloat16):\n    loss = model(batch)",
                    lightning="trainer = Trainer(..., precision='bf16-mixed')",
                    transformers="TrainingArguments(..., bf16=True" + ", tf32=True" * tf32 + ")",
                    accelerate="accelerator = Accelerator(mixed_precision='bf16')",
                ),
                risk="Products keep 10 (TF32) or 7 (bfloat16) bits of mantissa; sums stay in float32.",
                remedies=("dtype.tf32", "dtype.autocast"),
            ),
            savings=savings(
                case.step,
                Part.COMPUTE,
                ceiling=cost,
                low=low * cost,
                high=high * cost,
                method="float32 operations at the device's peak rate, a bound from below; tensor cores are up to 8 "
                "times faster, 1.4 to 3 times in practice",
            ),
        )
    ]


def _useless_scaler(case: _Case) -> list[Finding]:
    """A gradient scaler keeps float16 gradients from vanishing; bfloat16 has float32's range."""
    precision, step = case.precision, case.step
    if not precision.grad_scaler or case.ops.self_ms("float16") > 0 or precision.autocast_dtype == "float16":
        return []
    scaling = [op for op in case.ops.ops if op.name.startswith("_amp_")]
    cost = in_step(step, case.ops, sum(op.total_ms_per_step for op in scaling))
    cost_share = cost / step.step_ms
    if cost_share < case.limits.scaler_min_share:
        return []
    return [
        Finding(
            id="PD07.needless-grad-scaler",
            severity=severity(cost_share, case.limits.min_share, case.limits.error_share),
            confidence=Confidence.HIGH,
            message="a GradScaler takes {cost_ms} a step although nothing is computed in float16",
            reasoning="it rescales gradients and checks them for overflow, with a sync per optimizer step; bfloat16 "
            "and float32 do not overflow",
            evidence=(
                milliseconds("cost_ms", cost, "rescaling per step"),
                share("cost_share", cost_share, "of the step"),
            ),
            location=location(precision.grad_scaler_site),
            fix=Fix(
                text="Remove the scaler, or switch it off.",
                code=in_words_of(
                    case.evidence.job,
                    "scaler = torch.amp.GradScaler(enabled=False)",
                    lightning="trainer = Trainer(..., precision='bf16-mixed')  # instead of 16-mixed",
                    transformers="TrainingArguments(..., bf16=True, fp16=False)",
                    accelerate="accelerator = Accelerator(mixed_precision='bf16')  # instead of fp16",
                ),
            ),
            savings=savings(
                step, Part.COMPUTE, ceiling=cost, low=0.8 * cost, high=cost, method="the measured time of its operators"
            ),
        )
    ]


def _conversions(case: _Case) -> list[Finding]:
    """Types converted to one another and back within a step."""
    sites = case.evidence.call_sites
    if isinstance(sites, Missing):
        return []
    # Autocast converts by design: its own pair is its own business.
    autocast = {"float32", case.precision.autocast_dtype}
    lines = [call for call in sites if call.kind == "convert" and set(call.detail.split("->")) != autocast]
    directions = {call.detail for call in lines}
    lines = [call for call in lines if "->".join(reversed(call.detail.split("->"))) in directions]
    cost = sum(call.ms_per_step for call in lines)
    cost_share = cost / case.step.step_ms
    if cost_share < case.limits.min_share:
        return []
    return [_conversion(case, lines, cost, cost_share)]


def _conversion(case: _Case, lines: list[CallSite], cost: float, cost_share: float) -> Finding:
    worst = max(lines, key=lambda call: call.ms_per_step)
    return Finding(
        id="PD07.conversions",
        severity=severity(cost_share, case.limits.min_share, case.limits.error_share),
        confidence=Confidence.HIGH,
        message="types are converted back and forth for {cost_ms} a step, {cost_share} of it",
        reasoning="most of it by {conversion}, {calls:time} a step",
        evidence=(
            milliseconds("cost_ms", cost, "conversions per step"),
            share("cost_share", cost_share, "of the step"),
            Measurement("conversion", worst.detail, "text", "the costliest conversion"),
            Measurement("calls", worst.calls_per_step, "count", "its calls per step"),
        ),
        location=location(worst.site),
        fix=Fix(
            text="Choose one type for the whole path and convert once, where data enters.",
            code="x = x.float()  # once; then no .double(), .half() or .to(dtype) on the way",
            risk="Rounding changes where a wider type was used on purpose.",
        ),
        savings=savings(
            case.step,
            Part.COMPUTE,
            ceiling=cost,
            low=0.5 * cost,
            high=0.95 * cost,
            method="the measured time of the conversions",
        ),
    )


CHECK = Check(code="PD07", name="dtype", title="data types", limits=Limits(), examine=examine)
