"""Functions of the user's that return the same for sample after sample, or batch after batch."""

from __future__ import annotations

from perfdoctor.api.causes import recalled, steps_ahead
from perfdoctor.api.findings import Confidence, Finding, Part, location, present, savings, severity, share
from perfdoctor.api.quantities import MAKING, Fetch, SameResult

from .._shared.same_results import SAVED, how_often, once, reasoning, told
from .crowding import crowding
from .waiting import Case, fetch_measurements

_ASKED = "__getitem__"
"""Samples that are asked for again are not a function's own waste."""


def same_results(case: Case, fetch: Fetch, but_samples: bool) -> tuple[Finding, ...]:
    """One for each function; `but_samples`: whether those that make whole samples are told of otherwise."""
    return present(*(_finding(case, fetch, one) for one in fetch.same if not (but_samples and _makes_samples(one))))


def _makes_samples(one: SameResult) -> bool:
    return one.function.rpartition(".")[2] == _ASKED and not one.reads


def sure_share(case: Case, fetch: Fetch, one: SameResult) -> float:
    """What such a function takes of making a batch, in calls that come again."""
    return fetch.share_of(_recalled(case, one)[0])


def _recalled(case: Case, one: SameResult) -> tuple[float, float]:
    """Each worker keeps what it has made itself."""
    loader = case.loader
    return recalled(one, steps_ahead(case.evidence) * loader.steady_batches_per_step / max(1, loader.num_workers))


def _finding(case: Case, fetch: Fetch, one: SameResult) -> Finding | None:
    loader, step = case.loader, case.step
    least, most = crowding(case)
    # As far as making explains the wait at least; at most workers that make less wait for nothing else.
    least_ms, most_ms = _recalled(case, one)
    sure, part = (fetch.share_of(ms) for ms in (least_ms, most_ms))
    making = fetch.total_ms * loader.steady_batches_per_step / max(1, loader.num_workers)
    low = SAVED[0] * sure * (case.part(*MAKING) + least)
    high = SAVED[1] * (min(case.wait, part * making) + part * most)
    saved_share = (low + high) / 2 / step.step_ms
    if saved_share < case.limits.min_share:
        return None
    return Finding(
        id="PD03.same-result",
        severity=severity(saved_share, case.limits.min_share, case.limits.error_share),
        confidence=Confidence.HIGH,
        message=f"{{function}} {how_often(one, 'batch', case.samples)}: {{function_ms}} per batch",
        reasoning=reasoning(one, "batch") + "; a batch takes {make_ms} to make",
        evidence=(
            *case.shared(case.wait),
            *fetch_measurements(fetch),
            *told(one, "batch", (least_ms + most_ms) / 2),
            share("function_share", (sure + part) / 2, "of making a batch, in these calls"),
        ),
        location=location(one.at),
        fix=once(one),
        savings=savings(
            step,
            low,
            high,
            "its share of making a batch, as far as the loop waits for that or the workers take its CPUs; 85 % of it "
            "or all comes back",
            part=Part.INPUT_WAIT,
        ),
    )
