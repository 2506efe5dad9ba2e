"""A thread beside the training loop that pauses while everybody, the loop too, waits for it."""

from __future__ import annotations

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
)
from perfdoctor.api.quantities import Pause

from .._shared.pauses import awaited_pause
from .case import Forwards, Limits

_SAVED = (0.4, 1.0)
"""Of the time in which everybody waits: what comes after the pause comes sooner, and may take longer then. A judgement,
since nobody knows from here whether the pause is needed."""


def pausing(case: Forwards, limits: Limits) -> Finding | None:
    """An opportunity: a simulator may keep the pace of what it stands for."""
    pause = awaited_pause(case.evidence) if case.beside_training is not None else None
    if pause is None:
        return None
    cost = Cost(case.step, pause.awaited * case.step.step_ms)
    if cost.share < limits.min_share:
        return None
    return Finding(
        id="PD06.awaited-pause",
        severity=Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message="for {cost_ms} per step ({cost_share}) all threads wait for one that pauses in this line",
        reasoning=_words(pause) + "; the training loop waits meanwhile, and no thread computes",
        evidence=(
            *cost.measured("in which a thread pauses there, the loop waits and nobody computes"),
            Measurement("ran_out", pause.ran_out, "count", "waits here that ended because their time was over"),
            milliseconds("each_ms", pause.ms, "one of them, on average"),
        ),
        location=location(pause.site),
        fix=_fix(pause),
        savings=savings(
            case.step,
            _SAVED[0] * cost.ms,
            _SAVED[1] * cost.ms,
            "the share of looks at all threads in which everybody waited for it; whether it is needed is not known",
        ),
    )


def _words(pause: Pause) -> str:
    if not pause.ran_out:
        return "it sleeps here for a time of its own"
    return "{ran_out:wait} here ended because their time was over, after {each_ms} on average"


def _fix(pause: Pause) -> Fix:
    if not pause.ran_out:
        return Fix(
            text="Have it wait for what it is to do next, which ends when that comes, and not for a time.",
            code="request = requests.get()  # a queue.Queue; not while requests.empty(): time.sleep(0.01)\n"
            "ready.wait()              # a threading.Event; not while not done: time.sleep(0.01)",
            risk="None, unless the pause keeps the pace of something real.",
        )
    return Fix(
        text="End the wait when all who can come have come: a batch no larger than the threads that ask; or wait for "
        "less long.",
        code="while len(batch) < min(largest_batch, clients):  # more cannot come\n"
        "    batch.append(requests.get(timeout=longest_wait))",
        risk="A limit that is too short makes smaller batches.",
    )
