"""The control group's quota, when it is not the job's own number of threads that exceeds it (PD13)."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Finding, Fix, Measurement, share
from perfdoctor.api.quantities import Missing

from .case import WAITED, Case


def throttled(case: Case) -> Finding | None:
    """By the training thread's time without a CPU, or the time that the group was stopped."""
    lack, periods = case.lack, case.host.throttled_share
    if isinstance(periods, Missing) or not lack.throttled or lack.team_too_large:
        return None
    cost = case.worth(min(max(case.thread_delay_ms, lack.stopped_ms), case.step.working_ms))
    if cost is None:
        return None
    return Finding(
        id="PD12.throttled",
        severity=case.severity(cost),
        confidence=Confidence.HIGH,
        message="the CPU quota throttles the job in {periods} of its periods: {cost_ms} per step ({cost_share})",
        reasoning="the control group may use {quota:CPU}, and what runs in it, workers and other programs included, "
        "wants more",
        evidence=(
            share("periods", periods, "of quota periods throttled"),
            *cost.measured("stopped per step"),
            Measurement("quota", case.evidence.machine.usable_cpus, "count", "CPUs that the quota allows"),
            *case.shared(),
        ),
        fix=Fix(
            text="Raise the container's CPU limit, or run less beside the training in it: fewer workers, no other "
            "programs.",
            code="docker update --cpus 8 NAME  # or resources.limits.cpu in Kubernetes",
            language="bash",
        ),
        savings=cost.savings(WAITED, "the measured time without a CPU, or the time that the group was stopped"),
    )
