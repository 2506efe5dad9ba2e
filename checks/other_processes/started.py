"""Processes that the loop itself starts again and again, programs that it asks in each step, and messages that it
exchanges with processes of its own."""

from __future__ import annotations

from collections.abc import Sequence

from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Fix,
    Measurement,
    Part,
    Severity,
    location,
    milliseconds,
    savings,
)
from perfdoctor.api.quantities import CallSite, Missing

from .._shared.page_faults import page_faults_ms
from .case import Case

_TIMED = (0.8, 1.0)
"""Of the calls' own time: a pool that stays takes its tasks too, and a program that is asked rarely still is."""
_EXCHANGED = (0.4, 1.0)
"""Of messages: what the other processes compute is to be done here then, and nobody knows how long that is."""
_BRIEF_MS = 0.5
"""Of a message, sent or received, on average: a pipe and two switches of processes take 0.05 to 0.3 ms on two CPUs, so
what takes longer computes."""
_SEVERAL = 2.0
"""Messages per step, at least: one there and one back."""
_AGAIN = 4
"""Calls that were seen, at least: a pool that is made and ended once is no habit."""


def _again(case: Case, calls: Sequence[CallSite] | Missing) -> Sequence[CallSite]:
    """Lines that did so often enough."""
    known = () if isinstance(calls, Missing) else calls
    return [call for call in known if round(call.calls_per_step * case.step.count) >= _AGAIN]


def forked(case: Case) -> Finding | None:
    """Processes of the job's own code, at the line that spends most on them."""
    calls = _again(case, case.evidence.processes)
    cost = case.worth(sum(call.ms_per_step for call in calls))
    if cost is None:
        return None
    touched_ms = page_faults_ms(case.evidence)
    return Finding(
        id="PD12.started-each-step",
        severity=case.severity(cost),
        confidence=Confidence.HIGH,
        message="the loop starts processes again and again: {cost_ms} per step ({cost_share}) for starting and ending "
        "them",
        reasoning="each start copies this process's page tables, and whichever touches a page first afterwards copies "
        "the page: {touched_ms} of page faults per step; the calls were timed in the job itself",
        evidence=(
            *cost.measured("starting and ending processes"),
            _count(calls, "calls that start or end some, per step"),
            milliseconds("touched_ms", touched_ms, "page faults of this process, per step"),
        ),
        location=location(calls[0].site),
        fix=Fix(
            text="Start them once, before the loop, and hand them their work in each step; or leave it to the workers "
            "of a DataLoader.",
            code="pool = multiprocessing.Pool(2)  # before the loop\n"
            "for batch in batches:\n"
            "    rows = pool.map(prepare, batch)",
            risk="Processes that stay see no later change to this one's variables, and keep their memory.",
        ),
        savings=savings(
            case.step,
            _TIMED[0] * cost.ms,
            _TIMED[1] * cost.ms + touched_ms,
            "the calls' own time; with the page faults that each start brings, at most",
            part=Part.OTHER,
        ),
    )


def asked(case: Case) -> Finding | None:
    """Other programs, in the same way."""
    calls = _again(case, case.evidence.programs)
    cost = case.worth(sum(call.ms_per_step for call in calls))
    if cost is None:
        return None
    return Finding(
        id="PD12.programs-in-loop",
        severity=case.severity(cost),
        confidence=Confidence.HIGH,
        message="the loop runs other programs and waits for them: {cost_ms} per step ({cost_share})",
        reasoning="a program is started, answers and ends before training goes on; the calls were timed in the job "
        "itself",
        evidence=(*cost.measured("in these calls"), _count(calls, "such calls per step")),
        location=location(calls[0].site),
        fix=Fix(
            text="Ask once, or every fiftieth step, or in a thread beside the loop; what the system knows can be read "
            "in this process (`psutil`, `pynvml`).",
            code="if step % 50 == 0:\n    ...  # what runs the program",
            risk="What is asked rarely is older when it is used.",
        ),
        savings=cost.savings(_TIMED, "the calls' own time, at every fifth step or rarer", Part.OTHER),
    )


def exchanged(case: Case) -> Finding | None:
    """Messages that are so brief that passing them is what takes the time."""
    calls = _again(case, case.evidence.messages)
    spent_ms, often = sum(call.ms_per_step for call in calls), sum(call.calls_per_step for call in calls)
    cost = case.worth(spent_ms)
    if cost is None or often < _SEVERAL or spent_ms > _BRIEF_MS * often:
        return None
    return Finding(
        id="PD12.messages-in-loop",
        severity=Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message="{calls:message} per step go between the loop and processes of its own: {cost_ms} ({cost_share})",
        reasoning="each took {each_ms}, about as long as a pipe and two switches of processes do, so little of that "
        "can be what the processes compute; the calls were timed in the job itself",
        evidence=(
            *cost.measured("in sending messages and waiting for them"),
            _count(calls, "messages sent and received per step"),
            milliseconds("each_ms", spent_ms / often, "per message"),
        ),
        location=location(max(calls, key=lambda call: call.ms_per_step).site),
        fix=Fix(
            text="Compute what takes microseconds in this process. Else give each process several to do at a time, "
            "and read what managers hold once.",
            code="envs = [Env(seed + number) for number in range(count)]  # no process for each\n"
            "answers = [env.step(action) for env, action in zip(envs, actions)]",
            risk="What the processes computed at the same time comes one after the other.",
        ),
        savings=cost.savings(_EXCHANGED, "the calls' own time, less what the processes compute", Part.OTHER),
    )


def _count(calls: Sequence[CallSite], label: str) -> Measurement:
    return Measurement("calls", round(sum(call.calls_per_step for call in calls), 2), "count", label)
