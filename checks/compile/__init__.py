"""torch.compile: functions that are compiled again and again, that break into pieces, that it gives up, or that never
earn what compiling them took.

What it looks at
----------------
Dynamo's own record of what it compiled in this run: when, for how long, which function, the guard that failed, the line
behind which a function goes on in Python. Nothing is compiled for it. Steps that ran before the first compilation,
where there are five, say what a step takes without it.

Why it costs time
-----------------
Compiling a function takes 50 ms with a simple backend and seconds to minutes with Inductor. What was compiled holds
while its guards do: the sizes of tensors, Python numbers, which branch was taken. Where one fails the function is
compiled again, and a loop whose batches have another length in each step does so for as long as there are new lengths.
After 8 times torch gives up and runs the function in Python. A break (`print`, `.item()`, an `if` on a tensor) ends a
graph: what is around it is not fused, and Python runs between. Compiling is paid once and earned back step by step: if
it takes 30 s and a step of 100 ms becomes one of 70 ms, it has paid off after 1,000 steps, the break-even step.

Example
-------
    model = torch.compile(model, dynamic=False)
    for tokens in loader:          # padded to the longest of each batch
        loss = model(tokens)

How to fix
----------
`torch.compile(model, dynamic=True)`, or `torch._dynamo.mark_dynamic(tensor, 1)` for the dimension that varies; pad to
a few lengths; numbers that change from step to step as tensors. `torch.where` instead of `if`; prints and reads out of
the compiled function. `TORCH_LOGS=recompiles,graph_breaks` prints every one. In jobs that are too short to earn it
back (a test, a sweep of short runs), compile only where a flag says so, or share the cache
(`TORCHINDUCTOR_CACHE_DIR`).

When it stays silent
--------------------
In a job that does not call torch.compile, unless calling its many small operators takes a large part of the step: that
is an opportunity, predicted by their number and the time of the smallest one here; not on a GPU, not where a scalar is
read in the model, not without a C++ compiler. Compilations in the first half of the steps alone: a warm-up, a size that
becomes dynamic at its second value, an evaluation. Less than 5 % of the time of the later half, or fewer than three.
Where compiling goes on, all of it after the warm-up is counted, and what is told is a lower bound: a steady step leaves
the warm-up out, in which most is compiled. One break: a loss or a print outside the model often is one. Breaks and
functions that were given up are opportunities without a number: what they cost only a run without them shows. So are
jobs that call torch.compile and not what it returns, where they have too few operators for calling them to cost much.

Limits
------
Which line of a library's module (`nn.Sequential`, a transformer of an installed package) is compiled is not known: the
line that calls torch.compile is named. What a step takes without compiling is known only of a loop that ran some steps
before it compiled, on batches as large; of others `perfdoctor check --trial` measures it, with the remedy
`compile.off`. How long the job is, is known only if it was observed to its end (`--to-end`). What fusing large
operators saves is not predicted: a small convolutional network had a speed-up of 1.26x that nothing here tells. What a
CUDA graph records again is not seen.

References
----------
- PyTorch, "Dealing with recompilations"; "Common graph breaks"
- pytorch/pytorch, torch/_dynamo/config.py: recompile_limit = 8
"""

from __future__ import annotations

from perfdoctor.api.findings import (
    Check,
    Measurement,
    Outcome,
    cannot_tell,
    clear,
    found,
    not_applicable,
    present,
    share,
)
from perfdoctor.api.quantities import Compilation, Evidence, Missing

from .again import given_up, recompiles
from .breaks import graph_breaks
from .limits import Limits
from .paying import break_even, does_not_pay_off, slower_than_eager
from .uncompiled import never_ran, uncompiled


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """Compiling that goes on, then breaks and what was given up."""
    step, compilation = evidence.step, evidence.compilation
    if not evidence.job.compiled:
        opportunity = None if isinstance(step, Missing) else uncompiled(evidence, step)
        if not isinstance(step, Missing) and not isinstance(compilation, Missing) and compilation.never_ran:
            return found(never_ran(step, compilation, opportunity))
        return found(opportunity) if opportunity else not_applicable("the job does not call torch.compile")
    if isinstance(step, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    if isinstance(compilation, Missing):
        return cannot_tell(f"what was compiled is not known: {compilation}")
    if not compilation.count:
        return cannot_tell("Dynamo has no record of what it compiled: this version of torch keeps none")
    findings = present(
        recompiles(step, compilation, limits),
        slower_than_eager(step, compilation, limits),
        does_not_pay_off(step, compilation, evidence.anatomy, limits),
        given_up(step, compilation),
        graph_breaks(step, compilation, limits),
    )
    numbers = _measured(compilation)
    if findings:
        return found(*findings, measurements=numbers)
    gives = (
        "it has paid off after {break_even:step}"
        if any(number.name == "break_even" for number in numbers)
        else "what it gives cannot be told, for no such step ran without it: `--trial` would"
    )
    return clear(
        "{count:compilation} took {seconds}; in the later half of the steps {late_share} of the time; " + gives,
        *numbers,
    )


def _measured(compilation: Compilation) -> tuple[Measurement, ...]:
    late = compilation.late_ms / compilation.late_wall_ms if compilation.late_wall_ms > 0 else 0.0
    return (
        Measurement("count", compilation.count, "count", "compilations"),
        Measurement("seconds", compilation.seconds, "s", "compiling"),
        share("late_share", late, "of the later half of the steps"),
        *break_even(compilation),
    )


CHECK = Check(code="PD18", name="compile", title="torch.compile", limits=Limits(), examine=examine)
