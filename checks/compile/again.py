"""Functions that are compiled again and again, or that torch.compile has given up for that."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import PurePath

from perfdoctor.api.findings import (
    Confidence,
    Cost,
    Finding,
    Fix,
    Measurement,
    Part,
    Severity,
    location,
    milliseconds,
    savings,
    severity,
    share,
)
from perfdoctor.api.quantities import FORGOTTEN, Compilation, Recompiled, Site, Step

from .limits import Limits, unknown

_COMMENT = re.compile(r"\s+# ")
"""Before Dynamo's comment on a guard: the source of the line that reads the value, and where that is."""
_WHERE = re.compile(r"# (?:\S*/)?([^\s/]+):(\d+) in (\w+)")
_SAVED = 0.7
"""Of the time that compiling again took, at least."""
_ANY_SIZE = 0.3
"""Of the rest of the step, by which code for any size is slower than code for one, at most: where compiling takes most
of the step, nearly all of it is saved."""


def recompiles(step: Step, compilation: Compilation, limits: Limits) -> Finding | None:
    again = compilation.recompiled
    count, spent_ms = sum(one.count for one in again), sum(one.ms for one in again)
    goes_on = count >= limits.least or (count > 0 and compilation.again.most >= limits.least)
    if not goes_on or compilation.late_wall_ms <= 0:
        return None
    of_loop = spent_ms / compilation.late_wall_ms
    if of_loop < limits.min_share:
        return None
    whole = compilation.again
    cost = Cost(step, whole.per_step_ms)
    low = max(_SAVED * cost.ms, cost.ms - _ANY_SIZE * max(0.0, step.step_ms - cost.ms))
    high = max(cost.ms, whole.beyond_ms / max(1, whole.steps))
    dearest = again[0]
    return Finding(
        id="PD18.recompiles",
        severity=severity(of_loop, limits.min_share, limits.error_share),
        confidence=Confidence.HIGH,
        message="torch.compile compiles again {again:time} in {steps:step}: at least {cost_ms} per step",
        reasoning=("{guard}" if _is_forgotten(dearest) else "a guard fails: {guard}")
        + "; with the warm-up it was {whole_again:time}, for {whole_s} in all",
        evidence=(
            milliseconds("cost_ms", cost.ms, "compiling again, per step after the warm-up"),
            share("of_loop", of_loop, "of the later half of the steps"),
            Measurement("again", whole.count, "count", "compilations after the warm-up"),
            Measurement("steps", whole.steps, "count", "steps after it"),
            milliseconds("each_ms", spent_ms / count, "one compilation"),
            Measurement("whole_again", whole.whole_count, "count", "compilations of what had been compiled before"),
            Measurement("whole_s", whole.whole_ms / 1000, "s", "in them"),
            Measurement("guard", _guard(dearest), "text", "guard that fails"),
        ),
        location=location(
            compilation.called_at if _is_forgotten(dearest) else _place(dearest) or compilation.called_at
        ),
        fix=_for_guard(dearest),
        savings=savings(
            step,
            low,
            high,
            "at least the time that Dynamo recorded for compiling again, less what code for any size "
            "may be slower; at most by how much the steps that compile are longer",
            part=Part.EPOCH if compilation.irregular else Part.COMPUTE,
            first=True,
        ),
    )


def given_up(step: Step, compilation: Compilation) -> Finding | None:
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
            Measurement("guard", _guard(dearest), "text", "guard that failed last"),
        ),
        location=location(_place(dearest) or compilation.called_at),
        fix=_for_guard(dearest),
        savings=unknown(step, "what the compiled function would take was not seen"),
    )


def _guard(recompiled: Recompiled) -> str:
    """The commonest, without Dynamo's comment on it."""
    return _COMMENT.split(recompiled.reasons[0])[0] if recompiled.reasons else "unknown"


def _place(recompiled: Recompiled) -> Site | None:
    """The line that reads what the guard names, where Dynamo says which and it is in the function's file; else the
    function."""
    site = recompiled.site
    said = _WHERE.search(recompiled.reasons[0]) if recompiled.reasons else None
    if said is None or site is None or PurePath(site.file).name != said[1]:
        return site
    return replace(site, line=int(said[2]), function=said[3])


def _is_forgotten(recompiled: Recompiled) -> bool:
    return FORGOTTEN in recompiled.reasons[:1]


def _for_guard(recompiled: Recompiled) -> Fix:
    if _is_forgotten(recompiled):
        return Fix(
            text="Compile once, leave out the reset, and put new weights into the model that is compiled.",
            code="compiled = torch.compile(model)  # once\n"
            "model.load_state_dict(fresh)  # in place of a new model, for each day or fold; no torch.compiler.reset()",
        )
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
