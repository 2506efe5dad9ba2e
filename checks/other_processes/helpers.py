"""Processes of the job's own that never sleep, or use much CPU, beside training that waits for one."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Finding, Fix, Measurement, Severity, location, savings
from perfdoctor.api.quantities import Missing, Site

from .._shared.spinning import COLLAPSE, waited_ms
from .case import WAITED, Case

_POLLS = Fix(
    text="If it only waits for something to do, let it sleep meanwhile; if it works, give it CPUs of its own, and "
    "training as many threads as the rest.",
    code="task = queue.get()  # not get_nowait() in a loop\n# or, between two looks:\ntime.sleep(0.1)",
)
_WORKS = Fix(
    text="Let it work less often, on less, or after training; on fewer threads it disturbs less.",
    code="stop.wait(60)  # between two rounds\ntorch.set_num_threads(1)  # in the helper; OMP_NUM_THREADS=1 for NumPy",
    risk="What it makes is older when it is used.",
)


def busy_helper(case: Case) -> Finding | None:
    """What such a process does is not seen from here, so it is an opportunity: it may work, or only poll."""
    limits, helpers = case.limits, case.host.helpers
    if not helpers or case.host.idle_cpus >= limits.idle_cpus or case.job_delay <= limits.delay_share:
        return None
    threads = case.evidence.threads
    team = not isinstance(threads, Missing) and threads.intra_op > 1
    cost = case.worth(waited_ms(case.step, case.lack, team=team))
    if cost is None:
        return None
    helper = helpers[0]
    polls = helper.never_sleeps
    crowded = polls and team and case.lack.demand + len(helpers) > case.lack.usable_cpus
    most_ms = max(cost.ms, COLLAPSE * case.step.working_ms if crowded else 0.0)
    used = sum(helper.cpus for helper in helpers)
    return Finding(
        id="PD12.busy-helper",
        severity=Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message=f"{helper.who}, which the job started, "
        + ("never sleeps" if polls else "works in bursts")
        + ", while training lacks a CPU: {cost_ms} per step ({cost_share})",
        reasoning="it neither trains nor makes batches for a DataLoader, and keeps {used:core} busy of "
        "{usable:usable CPU}, while the job waits for a CPU for {job_delay} of its runnable time",
        evidence=(
            *cost.measured("that the job's processes wait for one another"),
            Measurement("used", round(used, 2), "count", "cores used by such processes"),
            *_started(helper.started_at),
            Measurement("usable", case.lack.usable_cpus, "count", "usable CPUs"),
            *case.shared(),
        ),
        location=location(helper.started_at if isinstance(helper.does, Missing) else helper.does),
        fix=_POLLS if polls else _WORKS,
        savings=savings(
            case.step,
            WAITED[0] * cost.ms,
            most_ms,
            "the time without a CPU, of which up to 30 % may be the job's own threads"
            + ("; threads that spin until another has a CPU may lose most of the step" if crowded else ""),
        ),
    )


def _started(site: Site | Missing) -> tuple[Measurement, ...]:
    if isinstance(site, Missing):
        return ()
    return (Measurement("started_at", f"{site.file}:{site.line}", "text", "where the process is started"),)
