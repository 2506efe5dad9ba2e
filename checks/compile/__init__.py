"""torch.compile: functions that are compiled again and again, that break into pieces, or that it gives up.

What it looks at
----------------
Dynamo's own record of what it compiled in this run: when, for how long, which function, the guard that failed, the line
behind which a function goes on in Python. Nothing is compiled for it.

Why it costs time
-----------------
Compiling a function takes 50 ms with a simple backend and seconds to minutes with Inductor. What was compiled holds
while its guards do: the sizes of tensors, Python numbers, which branch was taken. Where one fails the function is
compiled again, and a loop whose batches have another length in each step does so for as long as there are new lengths.
After 8 times torch gives up and runs the function in Python. A break (`print`, `.item()`, an `if` on a tensor) ends a
graph: what is around it is not fused, and Python runs between.

Example
-------
    model = torch.compile(model, dynamic=False)
    for tokens in loader:          # padded to the longest of each batch
        loss = model(tokens)

How to fix
----------
`torch.compile(model, dynamic=True)`, or `torch._dynamo.mark_dynamic(tensor, 1)` for the dimension that varies; pad to
a few lengths; numbers that change from step to step as tensors. `torch.where` instead of `if`; prints and reads out of
the compiled function. `TORCH_LOGS=recompiles,graph_breaks` prints every one.

When it stays silent
--------------------
In a job that compiles nothing, unless calling its many small operators takes a large part of the step: that is an
opportunity, priced by their number and the time of the smallest one here; not on a GPU, not where a scalar is read in
the model, not without a C++ compiler. Compilations in the first half of the steps: a warm-up, a size that becomes
dynamic at its second value, an evaluation. Less than 5 % of the time of the later half, or fewer than three. One
break: a loss or a print outside the model often is one. Breaks and functions that were given up are opportunities
without a number: what they cost only a run without them shows.

Limits
------
Which line of a library's module (`nn.Sequential`, a transformer of an installed package) is compiled is not known: the
line that calls torch.compile is named. Whether compiling pays at this length of job is not told here: `perfdoctor check
--trial` says it for a job that does not compile. What fusing large operators saves is not predicted either: a small
convolutional network had a speed-up of 1.26x that nothing here tells. What a CUDA graph records again is not seen.

References
----------
- PyTorch, "Dealing with recompilations"; "Common graph breaks"
- pytorch/pytorch, torch/_dynamo/config.py: recompile_limit = 8
"""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.findings import (
    Check,
    Confidence,
    Cost,
    Finding,
    Fix,
    Measurement,
    Outcome,
    Part,
    Savings,
    Severity,
    cannot_tell,
    clear,
    found,
    location,
    milliseconds,
    not_applicable,
    present,
    savings,
    severity,
    share,
)
from perfdoctor.api.quantities import Compilation, Evidence, GraphBreak, Missing, Recompiled, Step

from .uncompiled import uncompiled


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds."""

    min_share: float = 0.05
    """Of the time of the later half of the steps, spent compiling again: an argument of torch.compile avoids it."""
    error_share: float = 0.30
    """A judgement: a third of the time."""
    least: int = 3
    """Compilations in the later half: one or two may be its last new sizes."""
    breaks: int = 2
    """Lines that break graphs: one, at the loss or a print, is common."""


_SAVED = (0.7, 1.0)
"""Of the time that compiling again took: code for any size is compiled once, and may be a little slower."""
_SHOWN = 3
"""Breaks named in the evidence."""


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """Compiling that goes on, then breaks and what was given up."""
    step, compilation = evidence.step, evidence.compilation
    if not evidence.job.compiled:
        opportunity = None if isinstance(step, Missing) else uncompiled(evidence, step)
        return found(opportunity) if opportunity else not_applicable("the job does not call torch.compile")
    if isinstance(step, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    if isinstance(compilation, Missing):
        return cannot_tell(f"what was compiled is not known: {compilation}")
    if not compilation.count:
        return cannot_tell("Dynamo has no record of what it compiled: this version of torch keeps none")
    findings = present(
        _recompiles(step, compilation, limits),
        _given_up(step, compilation),
        _graph_breaks(step, compilation, limits),
    )
    if findings:
        return found(*findings, measurements=_measured(compilation))
    return clear(
        "{count:compilation} took {seconds}; in the later half of the steps {late_share} of the time",
        *_measured(compilation),
    )


def _measured(compilation: Compilation) -> tuple[Measurement, ...]:
    late = compilation.late_ms / compilation.late_wall_ms if compilation.late_wall_ms > 0 else 0.0
    return (
        Measurement("count", compilation.count, "count", "compilations"),
        Measurement("seconds", compilation.seconds, "s", "compiling"),
        share("late_share", late, "of the later half of the steps"),
    )


def _recompiles(step: Step, compilation: Compilation, limits: Limits) -> Finding | None:
    again = compilation.recompiled
    count, spent_ms = sum(one.count for one in again), sum(one.ms for one in again)
    if count < limits.least or compilation.late_wall_ms <= 0:
        return None
    of_loop = spent_ms / compilation.late_wall_ms
    if of_loop < limits.min_share:
        return None
    cost = Cost(step, spent_ms / compilation.late_steps)
    low, high = (fraction * cost.ms for fraction in _SAVED)
    dearest = again[0]
    return Finding(
        id="PD18.recompiles",
        severity=severity(of_loop, limits.min_share, limits.error_share),
        confidence=Confidence.HIGH,
        message="torch.compile compiles again {again:time} in {steps:step}: {cost_ms} per step ({of_loop} of the time)",
        reasoning="a guard fails: {guard}",
        evidence=(
            milliseconds("cost_ms", cost.ms, "compiling again, per step"),
            share("of_loop", of_loop, "of the later half of the steps"),
            Measurement("again", count, "count", "compilations in the later half of the steps"),
            Measurement("steps", compilation.late_steps, "count", "steps in it"),
            milliseconds("each_ms", spent_ms / count, "one compilation"),
            Measurement("guard", dearest.reasons[0] if dearest.reasons else "unknown", "text", "guard that fails"),
        ),
        location=location(dearest.site or compilation.called_at),
        fix=_for_guard(dearest),
        savings=savings(
            step,
            low,
            high,
            "the time that Dynamo recorded for compiling in the later half of the steps",
            ceiling=high,
            part=Part.EPOCH if compilation.irregular else Part.COMPUTE,
        ),
    )


def _for_guard(recompiled: Recompiled) -> Fix:
    if any("size mismatch" in reason or "stride mismatch" in reason for reason in recompiled.reasons):
        return Fix(
            text="Compile once for any size, or pad to a few sizes.",
            code="model = torch.compile(model, dynamic=True)\n"
            "torch._dynamo.mark_dynamic(tokens, 1)  # or only the dimension that varies",
            risk="Code for any size may be a little slower than that for one.",
        )
    return Fix(
        text="Keep what the guard names the same from step to step: a number that changes goes in as a tensor.",
        code="scale = torch.tensor(scale)  # in the place of a Python number",
    )


def _given_up(step: Step, compilation: Compilation) -> Finding | None:
    if not compilation.given_up:
        return None
    dearest = compilation.given_up[0]
    return Finding(
        id="PD18.given-up",
        severity=Severity.NOTE,
        confidence=Confidence.HIGH,
        message="torch.compile has given up {functions:function}, which runs uncompiled: too many recompilations",
        reasoning="the last guard that failed: {guard}",
        evidence=(
            Measurement("functions", len(compilation.given_up), "count", "functions given up"),
            Measurement("guard", dearest.reasons[0], "text", "guard that failed last"),
        ),
        location=location(dearest.site or compilation.called_at),
        fix=_for_guard(dearest),
        savings=_unknown(step, "what the compiled function would take was not seen"),
    )


def _graph_breaks(step: Step, compilation: Compilation, limits: Limits) -> Finding | None:
    breaks = compilation.breaks
    if len(breaks) < limits.breaks:
        return None
    return Finding(
        id="PD18.graph-breaks",
        severity=Severity.NOTE,
        confidence=Confidence.HIGH,
        message="compiled code goes on in Python at {breaks:line}",
        reasoning="what lies on both sides of a break is compiled apart, and not fused",
        evidence=(
            Measurement("breaks", len(breaks), "count", "lines that break a graph"),
            *(Measurement(f"break_{i}", _said(one), "text", "break") for i, one in enumerate(breaks[:_SHOWN], 1)),
        ),
        location=location(breaks[0].site),
        fix=Fix(
            text="Take prints and reads out of the compiled function, and choose with `torch.where` instead of `if`.",
            code="torch._dynamo.explain(model)(batch)  # lists every break with its reason",
        ),
        savings=_unknown(step, "what the whole graph would take was not seen"),
    )


def _unknown(step: Step, why: str) -> Savings:
    """Anything of the passes, or nothing."""
    return savings(step, 0.0, 0.0, f"not known: {why}", ceiling=step.parts.compute, general=True)


def _said(one: GraphBreak) -> str:
    place = f"{one.site.file}:{one.site.line}"
    return f"{place} ({one.reason})" if one.reason else place


CHECK = Check(code="PD18", name="compile", title="torch.compile", limits=Limits(), examine=examine)
