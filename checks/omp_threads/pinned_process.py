"""A training thread that the job itself keeps to some of its CPUs."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, location
from perfdoctor.api.quantities import Missing

from .case import Case

_MORE = (0.3, 1.0)
"""Of what more CPUs would save if passes were divided among all: two threads made them 1.2 to 2 times as fast."""
_RISK = "Whoever else was to have these CPUs shares them with training."


def pinned_process(case: Case) -> Finding | None:
    """Where CPUs that it had at its start are idle; none of them is tried, since the job keeps off them."""
    threads, idle = case.threads, case.idle or 0.0
    more = min(threads.launch_affinity_cpus, threads.affinity_cpus + int(idle + 0.5))
    if not 0 < threads.affinity_cpus < more:
        return None
    parts = case.step.parts
    cost = Cost(case.step, parts.forward + parts.backward)
    crowded = 0.0 if isinstance(case.gain, Missing) else min(case.gain.lost_ms, cost.ms)
    divided = (1 - threads.affinity_cpus / more) * (cost.ms - crowded)
    if crowded + _MORE[0] * divided < case.limits.min_share * case.step.step_ms:
        return None
    inherited = (
        "torch makes no more threads than that"
        if threads.intra_op <= threads.affinity_cpus
        else "so may torch's {threads:thread}, which wait for each other"
    )
    return Finding(
        id="PD13.pinned-process",
        severity=cost.severity(case.limits.min_share, case.limits.error_share),
        confidence=Confidence.MEDIUM,
        message="training keeps to {pinned:CPU} of the {launch} that it started with; {idle:CPU idles|CPUs idle}",
        reasoning=f"the thread that trains may run on {{pinned:CPU}}: {inherited}, and threads "
        "that it starts inherit it; forward and backward passes take {cost_ms} so",
        evidence=(
            Measurement("pinned", threads.affinity_cpus, "count", "CPUs that the training thread may use"),
            Measurement("launch", threads.launch_affinity_cpus, "count", "CPUs that the process had at its start"),
            *cost.measured("in forward and backward passes"),
            *case.shared(),
        ),
        location=location(threads.pinned_at),
        fix=_fix(case),
        savings=cost.savings(
            ((crowded + _MORE[0] * divided) / cost.ms, (crowded + _MORE[1] * divided) / cost.ms),
            "the passes, as timed with fewer threads where that is faster, divided among the CPUs that were idle; that "
            "is not timed, since the job may not use them",
        ),
    )


def _fix(case: Case) -> Fix:
    if case.binding:
        return Fix(
            text=f"Drop {' and '.join(case.binding)}: the first thread is bound by it when torch is imported, and with "
            "it all that it starts.",
            code=f"unset {' '.join(case.binding)}",
            language="bash",
            risk=_RISK,
        )
    if case.ranks > 1:
        return Fix(
            text="Give each rank CPUs of its own, by its `LOCAL_RANK`, or leave all of them to all ranks: nobody keeps "
            "them to a CPU but the job.",
            code='mine, ranks = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])\n'
            "os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[mine::ranks]))",
            risk=_RISK,
        )
    return Fix(
        text="Pin the helper in its own thread or process, and leave the training thread its CPUs.",
        code="def work():\n    os.sched_setaffinity(0, [core])  # of the thread that runs this\n    ...\n\n"
        "threading.Thread(target=work).start()",
        risk=_RISK,
    )
