"""CPU time that the hypervisor gave to other virtual machines."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Finding, Fix

from .case import WAITED, Case


def steal(case: Case) -> Finding | None:
    """By the stolen part of the time that something wanted a CPU: an idle CPU is never stolen."""
    host, step = case.host, case.step
    if host.steal_share <= case.limits.steal_share:
        return None
    seen = host.job_cpus + host.others_cpus + host.idle_cpus
    stolen = seen * host.steal_share / max(1e-9, 1 - host.steal_share)
    part = stolen / max(1e-9, stolen + host.job_cpus + host.others_cpus)
    cost = case.worth(min(part * step.cpu_ms, step.working_ms))
    if cost is None:
        return None
    return Finding(
        id="PD12.steal",
        severity=case.severity(cost),
        confidence=Confidence.MEDIUM,
        message="the hypervisor steals {steal} of the CPU time: about {cost_ms} per step ({cost_share})",
        reasoning="the kernel counts stolen time; which virtual machine got it cannot be seen from inside this one",
        evidence=(*cost.measured("stolen per step, estimated"), *case.shared()),
        fix=Fix(
            text="Use an instance type with CPUs of its own (not a burstable one whose credits are spent), or another "
            "host."
        ),
        savings=cost.savings(
            WAITED, "the stolen share of the CPU time that was wanted, of the training thread's CPU time"
        ),
    )
