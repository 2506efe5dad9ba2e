"""A model of so many small operators that calling them takes a large part of the step, and that is not compiled."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Fix,
    Measurement,
    Severity,
    location,
    milliseconds,
    savings,
    share,
)
from perfdoctor.api.quantities import Compilation, Evidence, Missing, Step

from .._shared.lines import model_place
from .._shared.reads import of_the_job
from .._shared.wording import in_words_of
from .limits import unknown

_PASSES = ("forward", "backward")
_SAVED = (0.4, 1.0)
"""Of the operators in the passes, as calls that are saved: with and without products in between, which stay calls of
their own. Measured on one thread of a CPU: a deep network of narrow layers 0.4, a small transformer 0.7, chains of
pointwise operators 1.0 and 1.3."""
_ENTERING = 50
"""Small operators that entering compiled code takes as long as, forward and backward: guards, autograd, arguments. A
network of three layers with 50 operators was slower compiled (0.79x)."""


_LEAST = 0.05
"""Of the step, at best: below, compiling is not worth a word."""


def uncompiled(evidence: Evidence, step: Step) -> Finding | None:
    """By the number of operators in the passes and the time of the smallest one, timed in the job's process.

    None on a GPU, where a scalar is read in the model (each breaks the graph), where no compiler is there, and where
    entering compiled code takes what it saves. What fusion saves of computing is not predicted: only a trial tells.
    """
    ops, lines = evidence.ops, evidence.hot_lines
    if isinstance(ops, Missing) or isinstance(lines, Missing) or isinstance(ops.batch_timings, Missing):
        return None
    if evidence.on_cuda or evidence.job.compile_lacks != "" or _reads_in_passes(evidence):
        return None
    calls = sum(line.ops_per_step for line in lines if line.part in _PASSES)
    floor_ms = ops.batch_timings.floor_ms
    calling_ms = min(step.parts.forward + step.parts.backward, calls * floor_ms)
    entering_ms = _ENTERING * floor_ms * max(1.0, step.micro_batches)
    low, high = (max(0.0, part * calling_ms - entering_ms) for part in _SAVED)
    if high < _LEAST * step.step_ms:
        return None
    return Finding(
        id="PD18.not-compiled",
        severity=Severity.NOTE,
        confidence=Confidence.LOW,
        message="calling the model's {calls:operator} one by one takes {calling_ms} per step ({calling_share})",
        reasoning="the smallest operator takes {floor_us} here, whatever it computes; compiled, several become one",
        evidence=(
            Measurement("calls", round(calls), "count", "operators in forward and backward"),
            Measurement("floor_us", 1000 * floor_ms, "us", "the smallest operator, timed in the job's process"),
            milliseconds("calling_ms", calling_ms, "calling them, per step"),
            share("calling_share", calling_ms / step.step_ms, "of the step"),
        ),
        location=location(model_place(evidence)),
        fix=Fix(
            text="Compile the model, if the job runs for much longer than compiling takes.",
            code=in_words_of(
                evidence.job,
                "model = torch.compile(model)",
                transformers="TrainingArguments(..., torch_compile=True)",
            ),
            risk="Compiling takes 10 s to a minute at the start, longer where Python unrolls a loop, and again for new "
            "shapes.",
            remedies=("compile.model",),
        ),
        savings=savings(
            step,
            low,
            high,
            "the operators of the passes times the smallest one, timed in the job's process: 40 % of that to all, less "
            "50 of them for entering compiled code",
            general=True,
        ),
    )


def never_ran(step: Step, compilation: Compilation, opportunity: Finding | None) -> Finding:
    """Of a job that calls torch.compile, and not what that returns; `opportunity`: what calls of operators cost."""
    return Finding(
        id="PD18.never-ran",
        severity=Severity.NOTE,
        confidence=Confidence.HIGH,
        message="torch.compile is called, and in {steps:step} nothing was compiled: what it returns is not called",
        reasoning="only a call of the compiled object itself runs compiled code; its other methods are those of the "
        "module that it was made from",
        evidence=(Measurement("steps", step.count, "count", "steady steps without a compilation"),),
        location=location(compilation.called_at),
        fix=Fix(
            text="Call the compiled object, or compile the method that is called.",
            code="loss = -compiled(batch).mean()  # not compiled.log_prob(batch), which runs uncompiled\n"
            "model.log_prob = torch.compile(model.log_prob)  # or the method itself",
            risk="Compiling takes 10 s to a minute at the start; without a gain that pays for it, take it out.",
        ),
        savings=unknown(step, "what compiled code would take was not seen")
        if opportunity is None
        else opportunity.savings,
    )


def _reads_in_passes(evidence: Evidence) -> bool:
    calls = () if isinstance(evidence.call_sites, Missing) else of_the_job(evidence.call_sites)
    return any(call.detail in _PASSES for call in calls)
