"""Matrices that an optimizer factorizes in each of its updates, though they change little from one to the next."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, Severity, location, savings
from perfdoctor.api.quantities import Evidence, Line, Missing, Step

from .._shared.lines import function, key
from .limits import Limits

_FACTORIZATIONS = {
    "_linalg_eigh",
    "_linalg_solve_ex",
    "_linalg_svd",
    "cholesky_inverse",
    "linalg_cholesky_ex",
    "linalg_eig",
    "linalg_inv_ex",
    "linalg_lu_factor_ex",
}
"""Not `linalg_qr`: a projection of the weights themselves is needed in each update."""
_RARELY = 0.9
"""Of their time, at least: every tenth update."""
_EACH = 1.6
"""Times its estimate for an ordinary step, up to which what was seen is done in each: of what every tenth update does,
and takes as long as all else in it, the window that meets it sees 1.8 times that."""


def factorized_each_step(evidence: Evidence, step: Step, lines: tuple[Line, ...], limits: Limits) -> Finding | None:
    """An opportunity: how old a preconditioner may be is a matter of training."""
    update = [line for line in lines if line.part == "optimizer"]
    seen = [(line, part) for line in update if (part := _share(line)) > 0]
    cost = Cost(step, sum(part * line.ms_per_step for line, part in seen))
    if not seen or cost.share < limits.factorized_share:
        return None
    line = max(seen, key=lambda one: one[1] * one[0].ms_per_step)[0]
    if sum(part * one.ops_ms for one, part in seen) > _EACH * cost.ms and not _ran_again(evidence, line):
        return None
    # What is made of the factors by the same function is needed as seldom as they are.
    made = sum(one.ms_per_step for one in update if function(one.site) == function(line.site))
    name = next(one.name for one in line.operators if one.name in _FACTORIZATIONS)
    return Finding(
        id="PD17.factorized-each-step",
        severity=Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message="each update factorizes its matrices anew: {cost_ms} per step ({cost_share})",
        reasoning="{operator} at this line, {runs:time} per step; statistics that are averaged over many updates "
        "change little in one, so Shampoo, SOAP and K-FAC factorize them every 10 to 100",
        evidence=(
            *cost.measured(),
            Measurement("operator", f"`{name.removeprefix('_')}`", "text", "the factorization"),
            Measurement("runs", line.runs_per_step, "count", "runs of the line per step"),
        ),
        location=location(line.site),
        fix=Fix(
            text="Factorize every so many updates, and keep the result between them: optimizers have an option for it "
            "(`update_freq`, `precondition_frequency`).",
            code="if step % 20 == 0:\n    roots = inverse_roots(statistics)",
            risk="Between two of them the preconditioner is old: compare the losses.",
        ),
        savings=savings(
            step,
            _RARELY * cost.ms,
            max(cost.ms, made),
            "90 % of the factorizations at least, at most all that their function takes of the optimizer's part",
        ),
    )


def _ran_again(evidence: Evidence, line: Line) -> bool:
    """Whether the job's own line was met in the steps of another window too."""
    watched = () if isinstance(evidence.code_lines, Missing) else evidence.code_lines
    return not line.site.via and any(
        one.part == line.part and one.called and key(one.site) == key(line.site) for one in watched
    )


def _share(line: Line) -> float:
    """Of the line's operators, in factorizations."""
    return sum(one.share for one in line.operators if one.name in _FACTORIZATIONS)
