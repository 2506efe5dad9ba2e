"""Vector extensions: whether the libraries use the instructions that this CPU has.

What it looks at
----------------
The CPU's flags against what three libraries use: torch's own kernels (elementwise operators), oneDNN (convolutions,
bfloat16) and MKL (float32 products), each with a knob of its own. Under a variable that limits one of them, the
job's own largest operators are timed after the job with it and without.

Why it costs time
-----------------
A vector instruction does 8 or 16 numbers at once. Scalar kernels of torch were measured 3 to 15 times slower in
elementwise operators, SSE4.1 in oneDNN 2.7 times in convolutions, AVX2 instead of AVX-512 87 times in bfloat16. The
knobs are independent: limiting torch's kernels leaves matrix products untouched.

Example
-------
    export ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41   # 2.4 times slower in the whole

How to fix
----------
Unset the variable. Where a hypervisor masks instructions, choose another CPU model for the virtual machine.

When it stays silent
--------------------
When the limit costs less than 5 % of the step, as timed: MKL_ENABLE_INSTRUCTIONS has no effect on AMD, and AVX2 was
measured as fast as AVX-512 for float32. Instructions that the CPU does not have are information, not a finding. A job
on a GPU.

Limits
------
Timings are of one thread and of operators that can be called again on plain tensors. Whether a hypervisor masks
instructions is told from the CPU's model number; what that costs cannot be measured. A variable that the job
sets after it imported torch counts where its library has read it: torch and MKL say so, of oneDNN it is assumed.

References
----------
- Deeplearning4j, "How to debug performance issues", step 11
- oneDNN, "CPU dispatcher control": ONEDNN_MAX_CPU_ISA
- pytorch#80252: AVX-512 kernels 18 % slower than AVX2 in a language model
- pytorch#118499: bfloat16 on CPUs without AVX-512 or AMX
"""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.causes import in_step, vector_extension_cost
from perfdoctor.api.findings import (
    Check,
    Confidence,
    Cost,
    Finding,
    Fix,
    Measurement,
    Outcome,
    Severity,
    cannot_tell,
    clear,
    found,
    location,
    milliseconds,
    not_applicable,
    savings,
)
from perfdoctor.api.quantities import Backend, Cpu, Evidence, Missing, OpProfile, Site, Step, VectorExtensionTimings


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds, as shares of the steady step."""

    min_share: float = 0.05
    """The interleaved timings of the two interpreters agree within 5 % on a machine that others use."""
    error_share: float = 0.20
    """A judgement: unsetting a variable is the cheapest fix there is."""
    masked_min_share: float = 0.25
    """Share of the step in arithmetic from which on masked vector extensions are worth a note."""


_KNOBS = (
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "DNNL_MAX_CPU_ISA",
    "MKL_CBWR",
    "MKL_DEBUG_CPU_TYPE",
    "MKL_ENABLE_INSTRUCTIONS",
)
_SPREAD = 0.2
"""Of the timed saving: one thread with warm caches is not the job."""
_MODELS: dict[tuple[str, int, int], tuple[str, ...]] = {
    ("GenuineIntel", 6, 85): ("avx512f",),
    ("GenuineIntel", 6, 106): ("avx512f",),
    ("GenuineIntel", 6, 108): ("avx512f",),
    ("GenuineIntel", 6, 143): ("avx512f", "avx512_bf16", "amx_bf16"),
    ("GenuineIntel", 6, 207): ("avx512f", "avx512_bf16", "amx_bf16"),
    ("GenuineIntel", 6, 173): ("avx512f", "avx512_bf16", "amx_bf16"),
    ("AuthenticAMD", 25, 17): ("avx512f", "avx512_bf16"),
    ("AuthenticAMD", 25, 97): ("avx512f", "avx512_bf16"),
    ("AuthenticAMD", 25, 160): ("avx512f", "avx512_bf16"),
    ("AuthenticAMD", 26, 2): ("avx512f", "avx512_bf16"),
}
"""What server CPUs have, by vendor, family and model: Skylake, Ice Lake, Sapphire, Emerald, Granite Rapids; Genoa,
Raphael, Bergamo, Turin."""
_MASKED_SAVES = {"float32": (0.0, 0.15), "bfloat16": (0.5, 0.82)}
"""Share of arithmetic time: AVX-512 over AVX2 gives -18 to 30 % in float32; native bfloat16 had a speed-up of 5.7x over
emulated."""


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """Caps by variable with their timing, then what a hypervisor hides."""
    step, backend = evidence.step, evidence.backend
    if evidence.on_cuda:
        return not_applicable("the job computes on a GPU; the CPU's vector instructions matter little to it")
    if isinstance(step, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    if isinstance(backend, Missing):
        return cannot_tell(f"the vector extensions of torch's kernels were not read: {backend}")
    limiting = {name: value for name in _KNOBS if (value := backend.variable(name))}
    shared = _shared(evidence.machine.cpu, backend, limiting)
    ops = evidence.ops
    if limiting:
        if isinstance(ops, Missing):
            return cannot_tell(f"operators were not profiled, so what the limit costs is not known: {ops}")
        if isinstance(backend.vector_extension_timings, Missing):
            return cannot_tell(
                f"{', '.join(limiting)} may limit the vector extensions: {backend.vector_extension_timings}"
            )
        return _limited(step, ops, backend.vector_extension_timings, limits, shared, evidence.job.option(*limiting))
    masked = None if isinstance(ops, Missing) else _masked(evidence.machine.cpu, step, ops, limits, shared)
    if masked is not None:
        return found(masked, measurements=shared)
    flags = evidence.machine.cpu.flags
    if backend.capability == "DEFAULT" and "avx2" in flags:
        return cannot_tell(
            "torch's own kernels are scalar although the CPU has AVX2 and no variable limits them: this build has no "
            "others; run the job with the official wheel and compare"
        )
    return clear("torch's kernels use {capability}; the CPU has {flags}", *shared)


def _shared(cpu: Cpu, backend: Backend, limiting: dict[str, str]) -> tuple[Measurement, ...]:
    variables = " ".join(f"{name}={value}" for name, value in limiting.items())
    return (
        Measurement("capability", backend.capability or "unnamed", "text", "vector extensions of torch's kernels"),
        Measurement("flags", " ".join(cpu.flags) or "none that is known", "text", "extensions of the CPU"),
        Measurement("hypervisor", "yes" if cpu.hypervisor else "no", "text", "virtual machine"),
        Measurement("variables", variables or "none", "text", "variables that limit them"),
    )


def _limited(
    step: Step,
    ops: OpProfile,
    timed: VectorExtensionTimings,
    limits: Limits,
    shared: tuple[Measurement, ...],
    at: Site | None,
) -> Outcome:
    """What the variables cost: timed operators by their own ratio, the rest of the operators by half of the mean."""
    cost = vector_extension_cost(step, ops, timed)
    saved, worst = Cost(step, cost.saved_ms), cost.worst
    numbers = (
        *shared,
        *saved.measured("what the limit costs, in timed operators per step"),
        Measurement("slower", cost.slower, "ratio", "timed operators with the limit over without"),
        Measurement("free", timed.full_capability or "the CPU's own", "text", "torch's kernels without the limit"),
    )
    if saved.share < limits.min_share:
        return clear(
            "{variables} costs {cost_ms} per step: timed operators take {slower} of their time without", *numbers
        )
    names = [name for name, _ in timed.variables]
    worst_slower = worst.limited_milliseconds / max(worst.full_milliseconds, 1e-9)
    return found(
        Finding(
            id="PD11.capped-by-environment",
            severity=Cost(step, cost.high_ms).severity(limits.min_share, limits.error_share),
            confidence=Confidence.HIGH,
            message="{variables} limits the vector extensions: {cost_ms} per step; speed-up {slower} without",
            reasoning="the job's own largest operators were timed after it, with the variables and without, in turns; "
            "{worst} loses most",
            evidence=(
                *numbers,
                Measurement("worst", worst.name, "text", "operator that loses most"),
                Measurement("worst_slower", worst_slower, "ratio", "its time with the limit over without"),
                Measurement("rounds", timed.rounds, "count", "rounds of timing"),
            ),
            location=location(at),
            fix=Fix(
                text="Unset what limits the vector extensions." if at is None else "Leave out the line that sets it.",
                remedies=("vector-extensions.all",) if at is None else (),
                code=f"unset {' '.join(names)}" if at is None else "",
                language="bash",
                risk="If it was set so that several machines compute the same bits, they no longer will."
                if "MKL_CBWR" in names
                else "Results may differ in their last digits.",
            ),
            savings=savings(
                step,
                (1 - _SPREAD) * saved.ms,
                cost.high_ms,
                "the job's largest operators timed on one thread with the variables and without; operators that were "
                "not timed may gain half as much",
            ),
        ),
        measurements=shared,
    )


def _masked(cpu: Cpu, step: Step, ops: OpProfile, limits: Limits, shared: tuple[Measurement, ...]) -> Finding | None:
    """Vector extensions that this model of CPU has and the virtual machine does not show."""
    if not cpu.hypervisor or cpu.family is None or cpu.model is None or not cpu.flags:
        return None
    hidden = [flag for flag in _MODELS.get((cpu.vendor, cpu.family, cpu.model), ()) if flag not in cpu.flags]
    dtype = "bfloat16" if ops.self_ms("bfloat16") > ops.self_ms("float32") else "float32"
    wanted = [flag for flag in hidden if ("bf16" in flag if dtype == "bfloat16" else flag == "avx512f")]
    work = sum(op.self_ms_per_step for op in ops.ops if op.flops_per_step > 0 and op.dtype == dtype)
    cost = Cost(step, in_step(step, ops, work))
    if not wanted or cost.share < limits.masked_min_share:
        return None
    low, high = (part * cost.ms for part in _MASKED_SAVES[dtype])
    return Finding(
        id="PD11.masked-by-hypervisor",
        severity=Severity.NOTE,
        confidence=Confidence.LOW,
        message="this CPU model has {hidden}, but the virtual machine hides it",
        reasoning="{arithmetic_ms} per step is arithmetic in {dtype}; what the vector extensions would save cannot be "
        "measured here",
        evidence=(
            *shared,
            Measurement("hidden", " ".join(wanted), "text", "hidden extensions"),
            Measurement("dtype", dtype, "text", "type of most arithmetic"),
            milliseconds("arithmetic_ms", cost.ms, "products and convolutions in that type per step"),
        ),
        fix=Fix(text="Choose an instance type or a CPU model for the virtual machine that passes them through."),
        savings=savings(
            step,
            low,
            high,
            "published and measured elsewhere: AVX-512 over AVX2 saves up to 15 % of float32 arithmetic, native over "
            "emulated bfloat16 has a speed-up of 2x to 5.7x",
        ),
    )


CHECK = Check(code="PD11", name="vector-extensions", title="vector extensions", limits=Limits(), examine=examine)
