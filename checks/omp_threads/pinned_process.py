"""A training thread that the job itself keeps to some of its CPUs."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, location

from .case import Case

_MORE = (0.3, 1.0)
"""Of what more CPUs would save if passes were divided among all: two threads made them 1.2 to 2 times as fast."""


def pinned_process(case: Case) -> Finding | None:
    """Where CPUs that it had at its start are idle; none of them is tried, since the job keeps off them."""
    threads, idle = case.threads, case.idle or 0.0
    more = min(threads.launch_affinity_cpus, threads.affinity_cpus + int(idle + 0.5))
    if not 0 < threads.affinity_cpus < more:
        return None
    parts = case.step.parts
    cost = Cost(case.step, parts.forward + parts.backward)
    divided = (1 - threads.affinity_cpus / more) * cost.ms
    if _MORE[0] * divided < case.limits.min_share * case.step.step_ms:
        return None
    return Finding(
        id="PD13.pinned-process",
        severity=cost.severity(case.limits.min_share, case.limits.error_share),
        confidence=Confidence.MEDIUM,
        message="training keeps to {pinned:CPU} of the {launch} that it started with; {idle:CPU idles|CPUs idle}",
        reasoning="the thread that trains may run on {pinned:CPU}: torch makes no more threads than that, and threads "
        "that it starts inherit it; forward and backward passes take {cost_ms} so",
        evidence=(
            Measurement("pinned", threads.affinity_cpus, "count", "CPUs that the training thread may use"),
            Measurement("launch", threads.launch_affinity_cpus, "count", "CPUs that the process had at its start"),
            *cost.measured("in forward and backward passes"),
            *case.shared(),
        ),
        location=location(threads.pinned_at),
        fix=Fix(
            text="Pin the helper in its own thread or process, and leave the training thread its CPUs.",
            code="def work():\n    os.sched_setaffinity(0, [core])  # of the thread that runs this\n    ...\n\n"
            "threading.Thread(target=work).start()",
            risk="Whoever else was to have these CPUs shares them with training.",
        ),
        savings=cost.savings(
            (_MORE[0] * divided / cost.ms, _MORE[1] * divided / cost.ms),
            "the passes, divided among the CPUs that were idle; not timed, since the job may not use them",
        ),
    )
