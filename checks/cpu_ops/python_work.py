"""Functions of the loop that compute in Python or in libraries other than torch, whatever it is that they do, and lines
in which the loop waits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from perfdoctor.api.causes import compute
from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, Severity, location, savings, share
from perfdoctor.api.quantities import Cause, CodeLine, Evidence, Missing, Step

from .._shared.in_python import lines_in_python, lists_read, named, profilers_calls
from .._shared.lines import function, key
from .._shared.pauses import awaited_pause, is_worked_for
from .limits import Limits

SAVED = (0.3, 1.0)
"""Of their time: nobody knows from here what the step can do without. Reading the middle of a `deque`, drawing with
probabilities from a long list, or making a batch by hand can go nearly all; a simulator stays, and gets cheaper."""
_LEAST_MS = 0.3
"""Less per step is what Python takes for the loop itself; a line that is watched takes a microsecond longer."""
_ONCE = 0.5
"""Runs per step, from which on a line's function ran in the step: `trainer.fit()` began before it."""
_ASLEEP = 0.5
"""Of that time, in which the thread had no CPU or wanted none: then it computes nothing."""
_AWAKE = (Cause.RUNNING, Cause.PAGE_FAULTS, Cause.UNEXPLAINED)
_BLOCKED = 0.7
"""Of a line's time, in which the thread wanted no CPU: it waits there, where nothing else in the step does."""
_WITHOUT_CPU = 0.2
"""Of its function's time, that the thread may have lacked a CPU: then it does both there, compute and wait. A commit of
SQLite's in each step was on a CPU for half of its time."""
_UNWAITED = (0.5, 1.0)
"""Of what a line waits: nobody knows from here whether the loop needs what it waits for."""


def python_work(
    evidence: Evidence, step: Step, told: Collection[tuple[str, int]], limits: Limits
) -> tuple[Finding, ...]:
    """The dearest function but for lines that were `told`; none where what is read of tensors is only counted."""
    if lists_read(evidence):
        return ()
    by_function: defaultdict[tuple[str, str], list[tuple[float, CodeLine]]] = defaultdict(list)
    for line in lines_in_python(evidence):
        if key(line.site) not in told and line.runs_per_step >= _ONCE:
            left_ms = line.ms_per_step - _known_ms(evidence, line)
            if left_ms > 0:
                by_function[function(line.site)].append((left_ms, line))
    found = [_finding(evidence, step, lines, limits) for lines in by_function.values()]
    dearest = max((one for one in found if one is not None), key=lambda one: one.savings.ceiling_ms, default=None)
    return () if dearest is None else (dearest,)


def _known_ms(evidence: Evidence, line: CodeLine) -> float:
    """What others say of it: calls that were watched, schedules, processes, a profiler."""
    profiler = profilers_calls(evidence)
    watched = (
        evidence.call_sites,
        evidence.schedules,
        evidence.processes,
        evidence.programs,
        evidence.messages,
        profiler,
    )
    calls = (call for seen in watched if not isinstance(seen, Missing) for call in seen)
    return sum(call.ms_per_step for call in calls if key(call.site) == key(line.site))


def _finding(evidence: Evidence, step: Step, lines: list[tuple[float, CodeLine]], limits: Limits) -> Finding | None:
    spent_ms = sum(ms for ms, _ in lines)
    cost = Cost(step, evidence.felt_ms(spent_ms))
    if spent_ms < _LEAST_MS or cost.share < limits.loop_share:
        return None
    split = compute(evidence)
    awake_ms = step.cpu_ms if isinstance(split, Missing) else split.ms(*_AWAKE)
    worst_ms, worst = max(lines, key=lambda pair: pair[0])
    asleep_ms = step.working_ms - awake_ms
    if asleep_ms <= _ASLEEP * spent_ms:
        return _computes(step, worst, worst_ms / spent_ms, cost)
    blocked_ms = 0.0 if isinstance(split, Missing) else split.ms(Cause.BLOCKED)
    if not blocked_ms or awaited_pause(evidence) is not None or is_worked_for(evidence):
        return None
    if blocked_ms > _BLOCKED * worst_ms:
        return _waits(step, worst, Cost(step, evidence.felt_ms(worst_ms)))
    if asleep_ms - blocked_ms <= _WITHOUT_CPU * spent_ms:
        return _computes(step, worst, worst_ms / spent_ms, cost, waits=True)
    return None


def _computes(step: Step, worst: CodeLine, worst_share: float, cost: Cost, *, waits: bool = False) -> Finding:
    return Finding(
        id="PD10.python-work",
        severity=Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message=f"{named(worst.site)} computes in Python and libraries other than torch: {{cost_ms}} per step "
        "({cost_share})",
        reasoning="training waits for it, and its lines issue hardly any operators; the line named takes {worst_share} "
        "of that" + ("; part of it is no computing but a wait, such as for a file or a database" if waits else ""),
        evidence=(
            *cost.measured("in lines of the function that issue hardly any operators"),
            share("worst_share", worst_share, "of that, in the line named"),
            Measurement("runs", worst.runs_per_step, "count", "runs of that line per step"),
        ),
        location=location(worst.site),
        fix=Fix(
            text="If it makes what the next step trains on, make that in a DataLoader's workers; if it comes out the "
            "same each time, once; if nothing waits for it, rarely. Else look for what is slow about it.",
            code="rows = [buffer[i] for i in picked]  # of a list: a deque is walked to its middle\n"
            "picked = np.searchsorted(cumulative, rng.random(n))  # not rng.choice(len(p), n, p=p)",
        ),
        savings=savings(
            step,
            SAVED[0] * cost.ms,
            SAVED[1] * cost.ms,
            "a third to all of these lines, timed in a step or two of the job itself",
        ),
    )


def _waits(step: Step, worst: CodeLine, cost: Cost) -> Finding:
    return Finding(
        id="PD10.waiting-line",
        severity=Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message="for {cost_ms} per step ({cost_share}) the loop waits in this line, and no CPU works for it",
        reasoning="for as long as this line takes, the training thread is neither on a CPU nor waiting for one: a "
        "pause, an interval that is measured, a request to a server, a file, a lock or a queue",
        evidence=(
            *cost.measured("in this line"),
            Measurement("runs", worst.runs_per_step, "count", "runs of that line per step"),
        ),
        location=location(worst.site),
        fix=Fix(
            text="Take it out of the loop, do it rarely, or let a thread do it that training does not wait for; what "
            "makes batches belongs into a DataLoader's workers.",
            code="load = psutil.cpu_percent(interval=None)  # since the last call; interval=0.1 waits for 0.1 s\n"
            "executor.submit(send, metrics)  # concurrent.futures; not send(metrics) in the loop",
        ),
        savings=savings(
            step,
            _UNWAITED[0] * cost.ms,
            _UNWAITED[1] * cost.ms,
            "this line, timed in a step or two of the job itself; what it waits for may be needed",
        ),
    )
