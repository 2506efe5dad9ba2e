"""CPU time that others take: processes on the same CPUs, the control group's quota, other virtual machines."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, share
from perfdoctor.api.quantities import Cause, Machine, Missing

from .case import OUTSIDE, WAITED, Case


def contention(case: Case) -> Finding | None:
    """By the training thread's time without a CPU, or by what its team of threads may wait for."""
    limits, others = case.limits, case.lack.fraction(Cause.NEIGHBOURS)
    if others <= 0 or case.job_delay <= limits.delay_share:
        return None
    threads = case.evidence.threads
    team = not isinstance(threads, Missing) and threads.intra_op > 1
    # Not all of the run delay: it is counted over all steps, and a thread that computes for most of the step can have
    # lost no more than the rest of it.
    measured = case.split.ms(Cause.NEIGHBOURS)
    cost, fractions, confidence = case.worth(measured), WAITED, Confidence.HIGH
    # What was lost in collections goes with them, and is theirs to save.
    kept = case.step.working_ms / max(case.step.working_ms + case.step.parts.gc, 1e-9)
    method = "the measured time without a CPU; up to 30 % of it may be the job's own threads and workers"
    if cost is None:
        # The training thread may be the one that spins while another thread of its team has no CPU.
        cost = case.worth(case.job_delay * case.step.working_ms * others if team else 0.0)
        fractions, kept, confidence = (0.0, 1.0), 1.0, Confidence.LOW
        method = "upper bound only: a team of threads is as late as its last one"
    if cost is None:
        return None
    owner = case.owner
    visible = owner != OUTSIDE
    return Finding(
        id="PD12.cpu-contention",
        severity=case.severity(cost),
        confidence=confidence,
        message="the job competes for CPU with {owner}: up to {cost_ms} per step ({cost_share})",
        reasoning="other processes used {others:core} while {idle:was|were} idle, and the job waited for a CPU for "
        "{job_delay} of its runnable time, its training thread for {thread_delay} per step"
        + ("" if visible else "; no process that can be seen from here used that much"),
        evidence=(
            Measurement("owner", owner, "text", "who took it"),
            *cost.measured("lost to others per step"),
            *case.shared(),
        ),
        fix=Fix(
            text=(
                "End or move the other processes, or give each its own CPUs"
                if visible
                else "Ask whoever schedules this machine for CPUs of your own"
            )
            + "; or use no more threads than the CPUs that are left.",
            code=f"taskset -c {_half(case.evidence.machine)} python train.py  # CPUs that nobody else uses",
            language="bash",
            risk="The other process may be somebody's work.",
        ),
        savings=Cost(case.step, kept * cost.ms).savings(fractions, method),
    )


def _half(machine: Machine) -> str:
    """Of the CPUs that the job may use, as `taskset` writes them."""
    last = max(1, machine.affinity_cpus // 2) - 1
    return f"0-{last}" if last else "0"


def throttled(case: Case) -> Finding | None:
    """When it is not the job's own number of threads that exceeds the quota (PD13)."""
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
