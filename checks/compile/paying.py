"""Whether compiling earns back what it takes: the break-even step."""

from __future__ import annotations

import math

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
from perfdoctor.api.quantities import Compilation, JobAnatomy, Missing, Step

from .limits import Limits, unknown

_SAVED = 0.7
"""Of what a compiled step is longer than the steps before: their batches may have been others."""


def break_even(compilation: Compilation) -> tuple[Measurement, ...]:
    """After how many steps what compiling took is earned back; nothing where that is not known, or never."""
    eager, now = compilation.eager_ms, compilation.compiled_ms
    if isinstance(eager, Missing) or isinstance(now, Missing) or eager <= now:
        return ()
    return (
        Measurement("break_even", math.ceil(1000 * compilation.seconds / (eager - now)), "count", "steps to earn it"),
        milliseconds("eager_ms", eager, "a step before anything was compiled"),
        milliseconds("compiled_ms", now, "a step in which nothing is compiled any more"),
    )


def slower_than_eager(step: Step, compilation: Compilation, limits: Limits) -> Finding | None:
    """Where the loop ran in Python first, and faster."""
    eager, now = compilation.eager_ms, compilation.compiled_ms
    if isinstance(eager, Missing) or isinstance(now, Missing) or now < limits.slower * eager:
        return None
    cost = Cost(step, now - eager)
    return Finding(
        id="PD18.slower-than-eager",
        severity=cost.severity(limits.min_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message="a compiled step takes {compiled_ms}, and took {eager_ms} before anything was compiled",
        reasoning="medians of this loop's own steps, without those that compile; compiling took {seconds} besides",
        evidence=(
            *cost.measured("by which a compiled step is longer"),
            milliseconds("eager_ms", eager, "a step before anything was compiled"),
            milliseconds("compiled_ms", now, "a step in which nothing is compiled any more"),
            Measurement("seconds", compilation.seconds, "s", "compiling"),
        ),
        location=location(compilation.called_at),
        fix=Fix(
            text="Leave torch.compile out, or compile the model alone; look at breaks and at what is compiled again.",
            code="torch.compiler.set_stance('force_eager')  # the same job in Python, to compare",
            remedies=("compile.off",),
        ),
        savings=savings(step, _SAVED * cost.ms, cost.ms, "the medians of the two; the batches may differ"),
    )


def does_not_pay_off(
    step: Step, compilation: Compilation, anatomy: JobAnatomy | Missing, limits: Limits
) -> Finding | None:
    """Of a job that was observed from its start to its end. It costs no steady step anything, so it has no number."""
    now = compilation.compiled_ms
    if isinstance(now, Missing) or isinstance(anatomy, Missing) or not anatomy.complete or anatomy.stopped:
        return None
    spent_ms, eager = 1000 * compilation.seconds, compilation.eager_ms
    if spent_ms < limits.min_share * anatomy.wall_ms:
        return None
    numbers = [
        Measurement("seconds", compilation.seconds, "s", "compiling"),
        share("of_job", min(1.0, spent_ms / anatomy.wall_ms), "of the job's time"),
        Measurement("steps", anatomy.steps, "count", "steps of the job"),
        milliseconds("compiled_ms", now, "a step in which nothing is compiled any more"),
    ]
    if isinstance(eager, Missing):
        required = 1 + spent_ms / (anatomy.steps * now)
        if required < limits.required:
            return None
        numbers.append(Measurement("required", required, "ratio", "by which a step in Python would have to be longer"))
        rest = "it pays only if Python takes {required} as long"
    else:
        if eager <= now or spent_ms <= (eager - now) * anatomy.steps:
            return None
        numbers += [one for one in break_even(compilation) if one.name != "compiled_ms"]
        rest = "it would have paid off after {break_even:step}"
    return Finding(
        id="PD18.does-not-pay-off",
        severity=Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message="compiling took {seconds} ({of_job} of the job) for {steps:step}; " + rest,
        reasoning="what compiling takes is paid once, by Dynamo's own record; a step of {compiled_ms} has to earn it",
        evidence=tuple(numbers),
        location=location(compilation.called_at),
        fix=Fix(
            text="In runs as short as this, do not compile; for many of them, share what was compiled.",
            code="torch.compiler.set_stance('force_eager')  # in short runs\n"
            "# export TORCHINDUCTOR_CACHE_DIR=/somewhere/that/stays",
            remedies=("compile.off",),
        ),
        savings=unknown(step, "it is the job's start that would be shorter, not its step"),
    )
