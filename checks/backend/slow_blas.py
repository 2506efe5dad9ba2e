"""Matrix products in a BLAS without kernels for this CPU."""

from __future__ import annotations

from perfdoctor.api.causes import in_step
from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, severity
from perfdoctor.api.quantities import Missing

from .case import Case

_SLOW_BLAS = ("", "generic", "atlas", "flame", "blis")
"""Without kernels for today's CPUs, or not known to have them; `mkl`, `open`, `nvpl`, `accelerate`, `ssl2` have."""
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")
_BLAS_SAVES = (0.5, 0.9)
"""OpenBLAS and MKL have a speed-up of 5x to 20x over the reference BLAS; half of the product time is a careful
bound."""


def slow_blas(case: Case) -> Finding | None:
    """A BLAS that is not known to be fast, and products that are measured to be slow."""
    evidence, step, backend, limits = case.evidence, case.step, case.backend, case.limits
    ops, threads = evidence.ops, evidence.threads
    if isinstance(ops, Missing) or isinstance(threads, Missing) or backend.acl or backend.blas not in _SLOW_BLAS:
        return None
    products = [op for op in ops.ops if op.name in _PRODUCTS and op.dtype == "float32"]
    spent_ms = sum(op.self_ms_per_step for op in products)
    flops = sum(op.flops_per_step for op in products)
    cost = Cost(step, in_step(step, ops, spent_ms))
    rate = flops / max(spent_ms, 1e-9) / 1e6 / max(1, min(threads.intra_op, evidence.machine.usable_cpus))
    if cost.share < limits.min_share or rate >= limits.min_gflops_per_thread:
        return None
    saved = cost.savings(
        _BLAS_SAVES, "the measured time of the products; fast libraries reach a speed-up of 2x to 10x, not timed here"
    )
    return Finding(
        id="PD01.slow-blas",
        severity=severity(saved.high_ms / step.step_ms, limits.min_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message="matrix products take {cost_ms} per step ({cost_share}): the BLAS {blas} is slow on this CPU",
        reasoning="each thread reaches {rate} per second; MKL, OpenBLAS or Arm Compute Library reach tens of GFLOP per "
        "second on one core",
        evidence=(
            *cost.measured("float32 products per step"),
            Measurement("rate", rate * 1e9, "flops", "per second and thread, measured"),
            *case.used(),
        ),
        fix=Fix(
            text="Install the official wheel, or build torch with OpenBLAS or MKL.",
            code="python -c 'import torch; print(torch.__config__.show())'  # BLAS_INFO=",
            language="bash",
        ),
        savings=saved,
    )
