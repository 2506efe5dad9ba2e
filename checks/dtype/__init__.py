"""Data types: arithmetic in a type, or on numbers, that this hardware is slow at.

What it looks at
----------------
The types of the operators in the profiled steps, weighted by floating-point operations and time; types of
parameters, batches and autocast; conversions in the step, with their lines; and what the hardware does with a
type. The largest operators that are not float32 are timed in this process in both types, and on a CPU that
multiplies bfloat16 the largest products in float32. On a CPU some numbers of every result: where operators that meet
subnormal ones (nearer to 0 than 1.2e-38 in float32) take a twentieth of the time, or steps get longer, a step's are
computed again on copies of their arguments, as they are and with such numbers taken for 0.

Of a trace: products by the type of their arithmetic, where the device bounds the step, and its peak rates by its
data sheet.

Why it costs time
-----------------
float64 moves twice the bytes and has half the vector width or less: on the machine this was developed on, matrix
products took 2.2 times and convolutions 6.9 times as long as in float32; consumer GPUs run it at 1/64 rate. float16
without hardware support is emulated: 180 times slower on that CPU, and bfloat16 40 times on one without AVX-512.
Many CPUs compute subnormal numbers in microcode, 100 to 200 cycles each: a matrix product took 1.9 ms, and 370 ms with
all of one factor subnormal. Gradients of dead units and Adam's averages of them fade to such numbers.

Example
-------
    x = torch.from_numpy(numpy_array)     # NumPy's default is float64
    model = model.double()                # "to match the input"

How to fix
----------
Convert the data once, where it enters (`.float()` in the data set), and keep the model in float32; use bfloat16
autocast where the hardware multiplies it natively; on a GPU with tensor cores allow TF32 or use autocast. Against
subnormal numbers call `torch.set_flush_denormal(True)` as the program starts.

When it stays silent
--------------------
When the slow type costs less than 5 % of the step: float64 in a loss, a metric or a small solver is legitimate.
When float32, measured on the job's own operators, would not be faster. When subnormal numbers cost nothing here, as on
AMD's Zen 4, or a handful is met.

Limits
------
On a CPU the timing of a type is measured; on a GPU it is estimated from peak rates, and says so. Operators inside
compiled graphs are seen as the graph's. LSTM and GRU count as their fused operator where there is one. Subnormal
numbers are looked for in steps at the start, where steps get longer, and after the 100th each time that as many steps
have passed again: values that fade later are not seen. Flushing them is no remedy to be tried in the running job, whose
threads keep their setting.

References
----------
- Deeplearning4j, "How to debug performance issues", step 7
- pytorch/pytorch#146508: float16 on CPUs without AVX512-FP16
- PyTorch blog, "What every user should know about mixed precision training"
- NVIDIA A100 and H100 data sheets: FP32 19.5 and 67 TFLOP/s, TF32 156 and 494
"""

from __future__ import annotations

from perfdoctor.api.causes import in_step, type_cost
from perfdoctor.api.findings import Check, Measurement, Outcome, cannot_tell, clear, found, milliseconds, present
from perfdoctor.api.quantities import Evidence, Missing

from .._shared.traced import traced
from .case import Case, Limits
from .mixed import conversions, needless_grad_scaler
from .on_device import in_trace
from .slow_type import bfloat16_unused, slow_type, tensor_cores_unused
from .subnormals import subnormal_numbers


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """float64, then emulated half precision, then tensor cores or bfloat16 left unused, then conversions and subnormal
    numbers."""
    step, ops, precision = evidence.step, evidence.ops, evidence.precision
    if isinstance(step, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    seen = traced(step, evidence.activity)
    if seen is not None:
        return in_trace(seen)
    if isinstance(ops, Missing):
        return cannot_tell(f"operators were not profiled: {ops}")
    if isinstance(precision, Missing):
        return cannot_tell(f"types were not read: {precision}")
    case = Case(evidence, step, ops, precision, limits)
    findings = present(
        slow_type(case, "float64"),
        slow_type(case, "float16"),
        slow_type(case, "bfloat16"),
        tensor_cores_unused(case),
        bfloat16_unused(case),
        needless_grad_scaler(case),
        conversions(case),
        subnormal_numbers(case),
    )
    if findings:
        return found(*findings, measurements=case.shared())
    for dtype, native in (("float16", precision.fp16_native), ("bfloat16", precision.bf16_native)):
        if native is not True and _untimed_half(case, dtype):
            return cannot_tell(
                f"the operators in {dtype} could not be timed in float32, so what {dtype} costs on this CPU is not "
                "known; run the job in float32 and compare"
            )
    timed = [] if evidence.on_cuda else _timed(case)
    return clear(
        "{float32_share} of the operators' time is in float32, {float64_share} in float64, {half_share} in half "
        "precision"
        + "".join(f"; float32 would save at most {{{one.name}}} of that in {dtype}" for dtype, one in timed),
        *case.shared(),
        *(one for _, one in timed),
    )


def _timed(case: Case) -> list[tuple[str, Measurement]]:
    """What float32 would save of a type in which the job does much, timed here: too little for a finding."""
    costs = [(dtype, type_cost(case.step, case.ops, dtype)) for dtype in ("float64", "float16", "bfloat16")]
    return [
        (dtype, milliseconds(f"{dtype}_saved", cost.high_ms, f"saved by float32 instead of {dtype}, at most"))
        for dtype, cost in costs
        if cost.ratio is not None and cost.cost_ms / case.step.step_ms >= case.limits.min_share
    ]


def _untimed_half(case: Case, dtype: str) -> bool:
    """Whether much of a CPU's step is in a half type that nothing timed."""
    share_of_step = in_step(case.step, case.ops, case.ops.self_ms(dtype)) / case.step.step_ms
    timed = any(timing.dtype == dtype for timing in case.ops.timings)
    return not case.evidence.on_cuda and not timed and share_of_step >= case.limits.min_share


CHECK = Check(code="PD07", name="dtype", title="data types", limits=Limits(), examine=examine)
