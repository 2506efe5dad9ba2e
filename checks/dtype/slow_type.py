"""Types that this hardware computes in slowly: emulated ones, float64, and float32 beside unused tensor cores."""

from __future__ import annotations

from perfdoctor.api.causes import PASSES_KEEP, bfloat16_saves, tried, type_cost
from perfdoctor.api.findings import (
    Confidence,
    Cost,
    Finding,
    Fix,
    Measurement,
    Severity,
    location,
    milliseconds,
    savings,
    share,
)
from perfdoctor.api.quantities import Missing, Site

from .._shared.lines import asked_for, forward_line, model_call
from .._shared.wording import in_words_of
from .case import Case


def slow_type(case: Case, dtype: str) -> Finding | None:
    """By timings of the job's own operators; on a GPU by its peak rates."""
    if case.evidence.on_cuda:
        return _double_on_cuda(case) if dtype == "float64" else None
    timing = type_cost(case.step, case.ops, dtype)
    cost = Cost(case.step, timing.ceiling_ms)
    if min(timing.sure_ms / case.step.step_ms, cost.share) < case.limits.min_share or not timing.is_dear:
        return None
    ratio = timing.ratio
    if dtype != "float64" and ratio is None:
        return None
    flops = case.ops.flops(dtype) / max(case.ops.flops(), 1.0)
    low, high, method = timing.low_ms, timing.high_ms, _method(timing.timed, dtype)
    whole = tried(case.step, case.ops, "float32") if dtype == "float64" else None
    # What computes in float64 beside the modules (a loss, a transform of the data) is in no pass.
    if whole is not None and whole >= case.limits.min_share * case.step.step_ms:
        update = _UPDATE_GAINS * case.step.parts.optimizer
        # Where operators alone would save more, they may be right: passes told 17 ms of a cure's 26, operators 22.
        low, high = PASSES_KEEP[0] * whole, max(PASSES_KEEP[1] * whole + update, high)
        method = "the job's own passes and its largest operators, made again in float32 after its last step"
    return Finding(
        id=f"PD07.{dtype}" if dtype == "float64" else f"PD07.{dtype}-emulated",
        severity=Severity.NOTE if dtype == "float64" and _is_numerics(case) else case.severity(cost),
        confidence=Confidence.HIGH if timing.timed else Confidence.MEDIUM,
        message=f"arithmetic in {dtype} takes {{cost_ms}} per step"
        + ("" if ratio is None else "; speed-up {ratio} in float32"),
        reasoning=_why(case, dtype) + "; {flop_share} of the floating-point operations are " + dtype,
        evidence=(
            milliseconds("cost_ms", timing.cost_ms, f"operators in {dtype} per step"),
            share("flop_share", flops, "of the floating-point operations"),
            *((Measurement("ratio", ratio, "ratio", "over float32, measured here"),) if ratio else ()),
            *((Measurement("timed", timing.timed, "count", "operators timed in both types"),) if timing.timed else ()),
            case.parameters,
        ),
        location=location(_place(case, dtype)),
        fix=_fix(case, dtype),
        savings=savings(case.step, low, high, method, ceiling=max(timing.ceiling_ms, high)),
    )


_UPDATE_GAINS = 0.5
"""Of the optimizer's part at most: half the bytes."""


def _double_on_cuda(case: Case) -> Finding | None:
    """On a GPU the host's operator times say nothing: weigh by floating-point operations and device time."""
    busy, total = case.ops.device_busy_ms, case.ops.flops()
    if busy is None or total <= 0:
        return None
    flop_share = case.ops.flops("float64") / total
    # Double precision runs at half rate at best, so its share of time is at least its share of operations.
    cost = Cost(case.step, min(busy, case.step.step_ms) * flop_share)
    if cost.share < case.limits.min_share:
        return None
    return Finding(
        id="PD07.float64",
        severity=case.severity(cost),
        confidence=Confidence.MEDIUM,
        message="{flop_share} of the GPU's floating-point operations are float64, at least {cost_ms} per step",
        reasoning=_why(case, "float64"),
        evidence=(
            share("flop_share", flop_share, "of the floating-point operations"),
            milliseconds("cost_ms", cost.ms, "of device time per step, at least"),
        ),
        location=location(_place(case, "float64")),
        fix=_fix(case, "float64"),
        savings=cost.savings((0.5, 0.95), "float64 runs at 1/2 (data centre) to 1/64 (consumer) of the float32 rate"),
    )


def _place(case: Case, dtype: str) -> Site | None:
    """The line that made torch's default type or the model float64; where a trainer did, the one that told it to; else
    the first that computes so. Where the whole model does, and no line was seen to, the dearest of the forward pass."""
    whole = dtype == "float64" and (case.precision.default_dtype == "float64" or case.is_double)
    asked = case.precision.double_site if whole else None
    by_lightning = asked is not None and asked.via and case.evidence.job.trainer == "lightning"
    if asked is not None and not by_lightning:
        return asked
    told = case.evidence.job.option("precision") if by_lightning else None
    return told or _first_line(case, dtype) or asked or (forward_line(case.evidence) if whole else None)


def _first_line(case: Case, dtype: str) -> Site | None:
    """What made a tensor of NumPy's numbers, in float64, that is computed with; else where a tensor of fewer bits meets
    one of them, so that all that follows is of that type; else the dearest line that makes such tensors, else the
    dearest that converts others to them."""
    seen = case.evidence.call_sites
    if isinstance(seen, Missing):
        return None
    made = [call for call in seen if call.kind == "from_numpy" and dtype == "float64"]
    meeting = [call for call in seen if call.kind == "promotes" and dtype == "float64"]
    lines = [call for call in seen if call.kind == dtype]
    into = [call for call in seen if call.kind == "convert" and call.detail.endswith(f"->{dtype}")]
    return next((call.site for some in (made, meeting, lines, into) for call in asked_for(case.evidence, some)), None)


_OF_NETWORKS = ("mm", "convolution", "rnn", "lstm", "gru", "attention", "embedding")
"""In the names of operators that a network's layers are made of."""


def _is_numerics(case: Case) -> bool:
    """Whether the program chose float64 for everything and has no network's layers: an integrator, a fit of a formula.
    It may need the digits, which nothing here can tell, so float32 is an opportunity."""
    chosen = case.precision.default_dtype == "float64"
    return chosen and not any(part in op.name for op in case.ops.ops for part in _OF_NETWORKS)


def _why(case: Case, dtype: str) -> str:
    precision = case.precision
    if dtype == "float64" and _is_numerics(case):
        return (
            "torch's default type is float64, and no layer of a network computes in it: if the formula needs the "
            "digits (an integrator, a solver), keep it"
        )
    if dtype != "float64":
        return f"this CPU has no {dtype} arithmetic for oneDNN to use, so each operator is emulated or converted"
    in_batches = "float64" in precision.batch_dtypes
    if precision.default_dtype == "float64":
        return "torch's default type is float64: something called `torch.set_default_dtype(torch.float64)`"
    if case.is_double and in_batches:
        return "the parameters are float64, and so are the batches, as NumPy makes them by default"
    if case.is_double:
        return "the parameters are float64 while the default type is float32, so the model was converted"
    if in_batches:
        return "the batches arrive in float64, as NumPy makes them by default, and the parameters are float32"
    return "parameters and batches are float32, so a part of the model computes in float64 on its own"


def _fix(case: Case, dtype: str) -> Fix:
    if dtype != "float64":
        return Fix(
            text=f"Train in float32 on this CPU; {dtype} pays only where the hardware multiplies it.",
            code="with torch.autocast('cpu', enabled=False):\n    loss = model(batch)",
            risk="Twice the memory for activations.",
            remedies=("dtype.float32",),
        )
    if case.precision.default_dtype == "float64":
        code = "torch.set_default_dtype(torch.float32)"
    elif case.is_double:
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
        risk="Rounding changes: 7 significant digits instead of 16. Keep float64 where the science needs it.",
        remedies=("dtype.float32",),
    )


def _method(timed: int, dtype: str) -> str:
    if not timed:
        return "half the bytes: operators bound by memory take 1/2 to 1/1.4 of the time"
    text = f"the largest operators timed here in {dtype} and in float32"
    return text + ("; the others by their bytes" if dtype == "float64" else "")


_FP32_TFLOPS = {(7, 0): 15.7, (7, 5): 8.1, (8, 0): 19.5, (8, 6): 29.8, (8, 9): 82.6, (9, 0): 67.0, (10, 0): 80.0}
"""Peak float32 rate without tensor cores, by compute capability, from NVIDIA's data sheets."""
_TENSOR_SAVES = (0.3, 0.7)
"""Share of float32 matrix time that TF32 or autocast saves: "3x end to end" at best, less when memory-bound."""


def tensor_cores_unused(case: Case) -> Finding | None:
    """By the float32 operations at the GPU's peak rate."""
    precision, step, capability = case.precision, case.step, case.precision.compute_capability
    if not case.evidence.on_cuda or capability is None or capability < (7, 0) or precision.tf32_matmul:
        return None
    rate = next((r for c, r in sorted(_FP32_TFLOPS.items(), reverse=True) if c <= capability), None)
    flops = case.ops.flops("float32")
    if rate is None or precision.autocast_dtype:
        return None
    cost = Cost(step, min(flops / (rate * 1e12) * 1e3, case.ops.device_busy_ms or step.step_ms, step.step_ms))
    if cost.share < case.limits.min_share:
        return None
    tf32 = capability >= (8, 0)
    return Finding(
        id="PD07.tensor-cores-unused",
        # float32 is the default, and fewer bits of mantissa are a choice.
        severity=Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message="float32 matrix arithmetic takes at least {cost_ms} per step and leaves the tensor cores unused",
        reasoning="neither autocast nor TF32 was on in the forward pass, and the device has compute capability "
        f"{capability[0]}.{capability[1]}",
        evidence=(
            milliseconds("cost_ms", cost.ms, "float32 matrix arithmetic per step at peak rate"),
            Measurement("flops", flops, "flops", "float32 operations per step"),
        ),
        location=location(model_call(case.evidence)),
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
        savings=cost.savings(
            _TENSOR_SAVES,
            "float32 operations at the device's peak rate, a bound from below; tensor cores have a speed-up of 8x at "
            "most, 1.4x to 3x in practice",
        ),
    )


_LAPACKS = ("cholesky", "eig", "svd", "_qr", "lu_factor", "solve", "_inv", "slogdet", "lstsq")
"""In names of operators that know no half type: products that feed one, a kernel's matrix say, fail under autocast.
Where the job's passes were made under it, they have shown that they run."""


def bfloat16_unused(case: Case) -> Finding | None:
    """On a CPU that multiplies it, by the job's own products, timed in it. On a GPU that is the tensor cores'."""
    precision = case.precision
    if case.evidence.on_cuda or precision.bf16_native is not True or precision.autocast_dtype or case.is_double:
        return None
    whole = tried(case.step, case.ops, "bfloat16")
    if whole is None and any(part in op.name for op in case.ops.ops for part in _LAPACKS):
        return None
    saved = bfloat16_saves(case.step, case.ops) if whole is None else (PASSES_KEEP[0] * whole, PASSES_KEEP[1] * whole)
    if saved is None or sum(saved) / 2 < case.limits.min_share * case.step.step_ms:
        return None
    products = sum(timing.bfloat16_milliseconds is not None for timing in case.ops.timings)
    return Finding(
        id="PD07.bfloat16-unused",
        # float32 is the default, and fewer bits of mantissa are a choice.
        severity=Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message="forward and backward would take {saved_ms} less per step under autocast to bfloat16, which this CPU "
        "multiplies"
        if whole is not None
        else "products in float32 would take {saved_ms} less per step in bfloat16, which this CPU multiplies",
        reasoning="the job's own passes were made again under autocast after its last step; the job has it off"
        if whole is not None
        else "{products:product was|products were} timed in both types here; autocast was off in the forward pass",
        evidence=(
            milliseconds("saved_ms", sum(saved) / 2, "less per step in bfloat16"),
            Measurement("products", products, "count", "products timed in both types"),
        ),
        location=location(model_call(case.evidence)),
        fix=Fix(
            text="Run the forward pass under autocast.",
            code=in_words_of(
                case.evidence.job,
                "with torch.autocast('cpu', torch.bfloat16):\n    loss = criterion(model(batch), target)",
                lightning="trainer = Trainer(..., precision='bf16-mixed')",
                transformers="TrainingArguments(..., bf16=True)",
                accelerate="accelerator = Accelerator(mixed_precision='bf16')",
            ),
            risk="Products keep 8 significant bits: compare the losses of a whole run.",
            remedies=("dtype.autocast",),
        ),
        savings=savings(
            case.step,
            *saved,
            "the job's own passes, made again under autocast"
            if whole is not None
            else "the largest products timed here in both types, with their inputs converted and without",
        ),
    )
