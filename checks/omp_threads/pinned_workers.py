"""Workers that all sit on the same few CPUs, because a binding variable put them there."""

from __future__ import annotations

from perfdoctor.api.causes import are_bound, own_wait_ms
from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, Part, location, milliseconds
from perfdoctor.api.quantities import Loader, Missing

from .case import Case


def pinned_workers(case: Case, loader: Loader) -> Finding | None:
    """By the whole wait for its batches."""
    workers, limits = loader.worker_threads, case.limits
    wait = Cost(case.step, own_wait_ms(case.evidence, case.step, loader))
    if isinstance(workers, Missing) or not case.binding or not are_bound(case.evidence, loader):
        return None
    if wait.share < limits.min_share:
        return None
    return Finding(
        id="PD13.workers-pinned",
        severity=wait.severity(limits.min_share, limits.error_share),
        confidence=Confidence.HIGH,
        message="all {workers:worker} run on the same {cpus:CPU}, and the loop waits {wait_ms} per step for them",
        reasoning="the environment ({binding}) binds the main thread to a CPU when torch is imported, and workers "
        "inherit that",
        evidence=(
            Measurement("workers", loader.num_workers, "count", "workers"),
            Measurement("cpus", workers.affinity_cpus, "count", "CPUs a worker may use"),
            milliseconds("wait_ms", wait.ms, "wait for data per step"),
            Measurement("binding", ", ".join(case.binding), "text", "variables that bind"),
        ),
        location=location(loader.site),
        fix=Fix(
            text="Drop the variable, or give the workers their CPUs back.",
            code="def unbind(worker_id):\n    os.sched_setaffinity(0, range(os.cpu_count()))\n\n"
            "loader = DataLoader(..., worker_init_fn=unbind)",
        ),
        savings=wait.savings(
            (0.3, 0.95),
            "the measured wait; how much of it goes depends on the CPUs that the workers get",
            Part.INPUT_WAIT,
        ),
    )
