"""Collectives that the loop calls itself, line by line."""

from __future__ import annotations

from collections.abc import Iterator

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, Part, location
from perfdoctor.api.quantities import Collective

from .case import Case

_SAVED = (0.7, 1.0)
"""Of a collective that is left out: the ranks then wait at the next one for what made them arrive apart."""
_TOGETHER = (0.3, 0.95)
"""Of many that become one: each takes a round trip, and what they carry is still sent."""
_ONE_BY_ONE = 8
"""Calls of one line per step from which on it sends tensor after tensor."""


def collectives_in_the_loop(case: Case) -> Iterator[Finding]:
    """Those that a step does not need, and those that could be one."""
    for call in case.together.collectives:
        cost = case.worth(call.least_ms)
        if call.site is None or cost is None:
            continue
        if call.kind.endswith("barrier"):
            yield _barrier(case, call, cost)
        elif "object" in call.kind:
            yield _objects(case, call, cost)
        elif call.kind == "all_reduce_scalar":
            yield _metric(case, call, cost)
        elif call.calls_per_step >= _ONE_BY_ONE:
            yield _one_by_one(case, call, cost)


def _finding(case: Case, call: Collective, cost: Cost, name: str, words: dict[str, str], fix: Fix) -> Finding:
    together = name == "collectives-one-by-one"
    return Finding(
        id=f"PD19.{name}",
        severity=case.severity(cost),
        confidence=Confidence.MEDIUM if name == "reduced-metric" else case.confidence,
        message=words["message"] + " takes {cost_ms} per step ({cost_share})",
        reasoning=words["reasoning"],
        evidence=(
            *cost.measured("this line's collectives per step, on the rank that waits least"),
            Measurement("calls", call.calls_per_step, "count", "calls per step"),
            Measurement("collective", call.kind.removesuffix("_scalar"), "text", "what it calls"),
        ),
        location=location(call.site),
        fix=fix,
        savings=cost.savings(
            _TOGETHER if together else _SAVED,
            "the time of these collectives on the rank that waits least in them",
            Part.COMMUNICATION,
        ),
    )


def _barrier(case: Case, call: Collective, cost: Cost) -> Finding:
    words = {
        "message": "a barrier in the step",
        "reasoning": "all ranks stop until the last has come; the reduction of gradients makes them wait anyway",
    }
    fix = Fix(text="Take it out of the step; ranks need one around files that one of them writes, and at the end.")
    return _finding(case, call, cost, "barrier-in-step", words, fix)


def _objects(case: Case, call: Collective, cost: Cost) -> Finding:
    words = {
        "message": "sending Python objects with `{collective}` in the step",
        "reasoning": "objects are pickled, their sizes sent first, then their bytes: several collectives, and all "
        "ranks wait in each",
    }
    fix = Fix(
        text="Send numbers as one tensor, and only when they are logged.",
        code="if step % 50 == 0:\n    dist.all_reduce(metrics)  # one tensor",
    )
    return _finding(case, call, cost, "objects-in-step", words, fix)


def _metric(case: Case, call: Collective, cost: Cost) -> Finding:
    words = {
        "message": "reducing a number over all ranks in the step",
        "reasoning": "an `all_reduce` of a few numbers is a round trip between the ranks, {calls:time} per step",
    }
    fix = Fix(
        text="Add up the number on each rank, and reduce it only when it is logged.",
        code="total += loss.detach()\nif step % 50 == 0:\n    dist.all_reduce(total)",
        risk="Where the number takes part in training (a normaliser, a norm for clipping), it is needed in every step.",
    )
    return _finding(case, call, cost, "reduced-metric", words, fix)


def _one_by_one(case: Case, call: Collective, cost: Cost) -> Finding:
    words = {
        "message": "this line calls `{collective}` {calls:time} per step, tensor by tensor, which",
        "reasoning": "each call is a round trip between the ranks, however small the tensor",
    }
    fix = Fix(
        text="Send the tensors as one, or let DistributedDataParallel reduce gradients during the backward pass.",
        code="flat = torch._utils._flatten_dense_tensors(gradients)\ndist.all_reduce(flat)",
        risk="The flat copy takes as much memory as the tensors.",
    )
    return _finding(case, call, cost, "collectives-one-by-one", words, fix)
