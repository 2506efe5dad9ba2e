"""Batches that wait for a CPU while they are made."""

from __future__ import annotations

from perfdoctor.api.causes import are_bound
from perfdoctor.api.findings import Confidence, Finding, Fix, Measurement
from perfdoctor.api.quantities import WITHOUT_CPU, Cause, Fetch, Missing

from .waiting import Case, fetch_measurements

_TAKEN = {
    Cause.NEIGHBOURS: (
        "{cpus:CPU is|CPUs are} usable, none is idle, and other processes take {others} of them",
        "End or move the other processes, or give each job its own CPUs.",
    ),
    Cause.OWN_THREADS: (
        "{cpus:CPU is|CPUs are} usable and other processes take no more than {others} of them: the job's own threads "
        "and workers compete for CPU with each other",
        "Use fewer OpenMP threads and workers than there are CPUs, or give this job more of them.",
    ),
    Cause.QUOTA: (
        "the control group's quota of {cpus} CPUs throttles the job",
        "Give the container a larger quota, or use fewer OpenMP threads and workers than it allows CPUs.",
    ),
    Cause.NO_CPU: (
        "{cpus} CPUs are usable, and who had them is not known",
        "Free CPUs: end or move other processes, or give this job a larger quota.",
    ),
}
"""Who had the CPUs, and what to do about it."""


def no_cpu_left(case: Case, fetch: Fetch, remaining: float) -> Finding:
    """Neither more workers nor a cheaper batch: CPUs. `remaining`: of the wait, what would be there with them, ms."""
    where = "in its workers" if case.loader.num_workers else "in the training process"
    machine, host, lost = case.evidence.machine, case.evidence.host, case.part(*WITHOUT_CPU)
    who, remedy = _TAKEN[case.split.blamed]
    if case.split.blamed is Cause.OWN_THREADS and are_bound(case.evidence, case.loader):
        who = "its workers are bound to fewer CPUs than the job may use"
    others = () if isinstance(host, Missing) else (host.others_cpus,)
    return case.finding(
        "no-cpu-left",
        "making a batch waits for a CPU",
        f"a batch takes {{make_ms}} {where}, of which {{run_delay_ms}} is runnable without a CPU; {who}, so more "
        "workers would make it worse",
        _fewer_threads(case, remedy),
        "the share of making a batch that is spent waiting for a CPU",
        low=0.5 * min(lost, case.wait - remaining),
        high=min(lost, case.wait - remaining),
        ceiling=case.wait - remaining,
        extra=(
            *fetch_measurements(fetch),
            Measurement("cpus", machine.usable_cpus, "count", "usable CPUs"),
            *(Measurement("others", cpus, "count", "CPUs taken by other processes") for cpus in others),
        ),
        confidence=Confidence.MEDIUM,
    )


def _fewer_threads(case: Case, remedy: str) -> Fix:
    """Where others have the CPUs, fewer threads and workers are advised only to a job that has some to spare."""
    threads, workers = case.evidence.threads, case.loader.num_workers
    fitting = max(1, int(case.evidence.machine.usable_cpus) - max(1, workers))
    own = case.split.blamed in (Cause.OWN_THREADS, Cause.QUOTA)
    spare = own or isinstance(threads, Missing) or threads.intra_op > fitting
    fewer = "" if own else " and ".join(["OpenMP threads"] * spare + ["workers"] * (workers > 1))
    return Fix(
        text=remedy + (f" Until then use fewer {fewer}." if fewer else ""),
        code=f"OMP_NUM_THREADS={fitting} python train.py" if spare else "",
        language="bash",
        remedies=("etl.worker-threads=1",) if workers else (),
    )
