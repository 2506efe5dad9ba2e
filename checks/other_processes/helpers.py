"""Processes of the job's own that never sleep, beside training that waits for a CPU."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, Severity
from perfdoctor.api.quantities import Cause, Missing

from .case import WAITED, Case


def busy_helper(case: Case) -> Finding | None:
    """What such a process does is not seen from here, so it is an opportunity: it may work, or only poll."""
    limits, helpers = case.limits, case.host.helpers
    own = case.lack.fraction(Cause.OWN_THREADS)
    if not helpers or case.host.idle_cpus >= limits.idle_cpus or case.job_delay <= limits.delay_share:
        return None
    threads = case.evidence.threads
    team = not isinstance(threads, Missing) and threads.intra_op > 1
    waited = WAITED[0] * own * case.thread_delay_ms
    # Whichever thread of a team lacks a CPU, the others wait for it, most of them spinning.
    most = own * (case.job_delay * case.step.working_ms if team else case.thread_delay_ms)
    cost = case.worth(most)
    if cost is None:
        return None
    used = sum(helper.cpus for helper in helpers)
    return Finding(
        id="PD12.busy-helper",
        severity=Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message=f"{helpers[0].who}, which the job itself started, never sleeps: up to {{cost_ms}} per step "
        "({cost_share})",
        reasoning="it neither trains nor makes batches for a DataLoader, and keeps {used:core} busy of "
        "{usable:usable CPU}, while the job waits for a CPU for {job_delay} of its runnable time",
        evidence=(
            *cost.measured("that the job's processes wait for one another"),
            Measurement("used", round(used, 2), "count", "cores used by such processes"),
            Measurement("usable", case.lack.usable_cpus, "count", "usable CPUs"),
            *case.shared(),
        ),
        fix=Fix(
            text="If it only waits for something to do, let it sleep meanwhile; if it works, give it CPUs of its own, "
            "and training as many threads as the rest.",
            code="task = queue.get()  # not get_nowait() in a loop\n# or, between two looks:\ntime.sleep(0.1)",
        ),
        savings=Cost(case.step, most).savings(
            (min(1.0, waited / most), 1.0),
            "the time without a CPU: the training thread's own at least, that of all its threads at most",
        ),
    )
