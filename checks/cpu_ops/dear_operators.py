"""Operators that few networks need in every step, such as decompositions of matrices and sorts, where one of them takes
much of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, Severity, location, share
from perfdoctor.api.quantities import Evidence, Line, Step

from .._shared.lines import PYTHON_PARTS, key
from .limits import Limits


@dataclass(frozen=True, slots=True)
class _Family:
    """Operators of which the same may be asked."""

    names: tuple[str, ...]
    fix: Fix
    saved: tuple[float, float] = (0.3, 0.98)
    """Of their time: nobody knows from here what the step can do without."""


_FAMILIES = (
    _Family(
        ("_linalg_svd", "_linalg_eigh", "linalg_eig", "_linalg_eigvals"),
        Fix(
            text="Compute what is read of it, and no more often than that changes: a largest singular value by power "
            "iteration from the last step's vectors, the first few by `torch.svd_lowrank`, those of a long matrix from "
            "its small product with itself; for a log, every so many steps.",
            code="u = F.normalize(weight @ v, dim=0)  # u and v are kept between steps\n"
            "v = F.normalize(weight.T @ u, dim=0)\n"
            "largest = u @ weight @ v",
            risk="Power iteration approaches the value over some steps.",
        ),
        (0.5, 1.0),
    ),
    _Family(
        ("linalg_lu_factor_ex", "linalg_inv_ex", "linalg_cholesky_ex", "_linalg_solve_ex", "linalg_qr", "linalg_lstsq"),
        Fix(
            text="Factorize a matrix once while it stays as it is, all of a batch in one call, and solve with the "
            "factor; a symmetric positive one by Cholesky, in half of the time.",
            code="factor = torch.linalg.cholesky(covariance)  # once\nx = torch.cholesky_solve(b, factor)",
        ),
    ),
    _Family(
        ("sort", "topk", "kthvalue", "median", "mode", "_unique2", "unique_dim", "unique_consecutive"),
        Fix(
            text="Sort fewer numbers, and once: the first few by `topk`, a quantile of a sample, what stays the same "
            "before the loop.",
            code="threshold = scores[torch.randint(len(scores), (4096,))].quantile(0.9)  # of a sample",
            risk="A quantile of a sample is near that of all, and not the same.",
        ),
    ),
    _Family(
        ("_fft_r2c", "_fft_c2c", "_fft_c2r"),
        Fix(
            text="Transform less: `rfft` for real signals, lengths that are products of 2, 3 and 5, fewer frames; of "
            "data that stay as they are once, before training.",
            code="spectrum = torch.fft.rfft(signal, n=4096)  # not fft(signal), 4099 numbers long",
        ),
    ),
    _Family(
        ("_cdist_forward", "_euclidean_dist", "_pdist_forward"),
        Fix(
            text="Compute fewer pairs: of a sample, of neighbours alone, or of points that stay as they are once.",
            code="picked = torch.randint(len(points), (256,))\ndistances = torch.cdist(points[picked], points[picked])",
            risk="A loss over a sample of pairs is noisier.",
        ),
    ),
)
_BY_NAME = {name: family for family in _FAMILIES for name in family.names}


def dear_operators(
    evidence: Evidence, step: Step, lines: tuple[Line, ...], told: Collection[tuple[str, int]], limits: Limits
) -> tuple[Finding, ...]:
    """The dearest of them, but for lines that were `told`."""
    spent: defaultdict[str, list[tuple[float, Line]]] = defaultdict(list)
    for line in lines:
        if line.part in PYTHON_PARTS and key(line.site) not in told:
            for issued in line.operators:
                if issued.name in _BY_NAME:
                    spent[issued.name].append((issued.share * line.ms_per_step, line))
    if not spent:
        return ()
    whole_ms, dearest = max((sum(ms for ms, _ in found), name) for name, found in spent.items())
    cost = Cost(step, evidence.felt_ms(whole_ms))
    return (_finding(dearest, spent[dearest], whole_ms, cost),) if cost.share >= limits.dear_share else ()


def _finding(name: str, spent: list[tuple[float, Line]], whole_ms: float, cost: Cost) -> Finding:
    family = _BY_NAME[name]
    worst_ms, worst = max(spent, key=lambda pair: pair[0])
    return Finding(
        id="PD10.dear-operator",
        severity=Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message="one operator, {operator}, takes {cost_ms} per step ({cost_share})",
        reasoning="this line takes {worst_share} of that, and runs {runs:time} per step; few networks need as much of "
        "it in every step, and what this one needs it for is not known",
        evidence=(
            *cost.measured("in this operator"),
            Measurement("operator", f"`{name.removeprefix('_')}`", "text", "the operator"),
            share("worst_share", worst_ms / whole_ms, "of that, in the line named"),
            Measurement("runs", worst.runs_per_step, "count", "runs of that line per step"),
        ),
        location=location(worst.site),
        fix=family.fix,
        savings=cost.savings(
            family.saved, "a third of the operator's share of its lines (half, of decompositions) to nearly all of it"
        ),
    )
