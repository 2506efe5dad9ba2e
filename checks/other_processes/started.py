"""Processes that the loop itself starts again and again, and programs that it asks in each step."""

from __future__ import annotations

from collections.abc import Sequence

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, Part, location, milliseconds, savings
from perfdoctor.api.quantities import CallSite, Missing

from .case import Case

_TIMED = (0.8, 1.0)
"""Of the calls' own time: a pool that stays takes its tasks too, and a program that is asked rarely still is."""
_AGAIN = 4
"""Calls that were seen, at least: a pool that is made and ended once is no habit."""


def started(case: Case) -> tuple[Finding, ...]:
    """At most one of each kind, at the line that costs most."""
    evidence = case.evidence
    found = (_forked(case, _again(case, evidence.processes)), _asked(case, _again(case, evidence.programs)))
    return tuple(one for one in found if one is not None)


def _again(case: Case, calls: Sequence[CallSite] | Missing) -> Sequence[CallSite]:
    """Lines that did so often enough."""
    known = () if isinstance(calls, Missing) else calls
    return [call for call in known if round(call.calls_per_step * case.step.count) >= _AGAIN]


def _forked(case: Case, calls: Sequence[CallSite]) -> Finding | None:
    cost = case.worth(sum(call.ms_per_step for call in calls))
    if cost is None:
        return None
    touched_ms = _touched_ms(case)
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


def _asked(case: Case, calls: Sequence[CallSite]) -> Finding | None:
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
        savings=Cost(case.step, cost.ms).savings(
            _TIMED, "the calls' own time, at every fifth step or rarer", Part.OTHER
        ),
    )


def _count(calls: Sequence[CallSite], label: str) -> Measurement:
    return Measurement("calls", round(sum(call.calls_per_step for call in calls), 2), "count", label)


def _touched_ms(case: Case) -> float:
    memory, fault_ns = case.evidence.memory, case.evidence.machine.page_fault_ns
    return 0.0 if isinstance(memory, Missing) or not fault_ns else memory.minor_faults * fault_ns / 1e6
