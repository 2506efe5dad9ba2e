"""Other processes: does somebody else use the CPUs, the memory or the GPU that this job needs.

What it looks at
----------------
From outside, twice a second over the steady steps: how long the job's threads were runnable without a CPU, the CPU
time of processes that are not the job's, idle and stolen time, throttling by the control group, memory pressure
and swapping. The processes that took the CPU are named: pid, command, user.

Why it costs time
-----------------
A thread that finds no CPU does nothing, and OpenMP makes its team wait for it. On a shared machine a neighbour that
keeps one of two cores busy takes half of a job's second core, and with spinning threads many times that. A
container's CPU quota stops all threads at once for the rest of each period. The cost is not visible inside the
job: everything just takes longer.

Example
-------
    python train.py &      # on 8 cores, beside somebody's `stress -c 8`: each step takes about twice as long

How to fix
----------
End or move the neighbour, give the job CPUs of its own (`taskset`, a cpuset, exclusive scheduling), raise the
container's quota, or use no more threads than the CPUs that are left.

When it stays silent
--------------------
When the job got the CPUs it asked for, however busy the rest of the machine is: below 10 % of its runnable time spent
waiting, and below 5 % of the step for the training thread. The job's own ranks, workers and threads are not strangers:
what they take from each other is for PD03 and PD13 to say.

Limits
------
Inside a container other containers are invisible: then time is missing but no owner can be named, and the report says
so. Memory bandwidth and shared caches are not measured. GPU sharing is told from utilisation beyond the job's own
kernels. Stolen time is an estimate: the hypervisor does not say from whom it took it. Slow storage is PD03's.

References
----------
- Deeplearning4j, "How to debug performance issues", step 12
- Linux, Documentation/scheduler/sched-stats: run delay
- Linux, Documentation/accounting/psi
- kubernetes-mixin, CPUThrottlingHigh: 25 % of periods
"""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.causes import SIGNS, Signs, compute, lack_of_cpu
from perfdoctor.api.findings import (
    Check,
    Confidence,
    Finding,
    Fix,
    Measurement,
    Outcome,
    Part,
    cannot_tell,
    clear,
    found,
    milliseconds,
    savings,
    severity,
    share,
)
from perfdoctor.api.quantities import Cause, Compute, Evidence, Host, Lack, Machine, Missing, Step

from .shared_gpu import gpu_findings


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds."""

    min_share: float = 0.05
    """Share of the step that the training thread spends runnable without a CPU: what a finding is worth, as for
    other checks whose cost is measured in every step."""
    error_share: float = 0.20
    """A judgement: a fifth of the step is worth asking the neighbour to leave."""
    delay_share: float = SIGNS.delay_share
    """The same for all threads of the job, of their runnable time: the best single sign of contention."""
    others_cpus: float = SIGNS.others_cpus
    """CPU of strangers, in cores, from which on they may be the cause; below, the job fights with itself."""
    idle_cpus: float = SIGNS.idle_cpus
    """With half a core idle on average, a neighbour is not what the job waits for."""
    throttled_share: float = 0.25
    """Share of quota periods in which the group was stopped (kubernetes-mixin's alert), if it also cost time."""
    steal_share: float = 0.10
    """Share of CPU time that the hypervisor gave to other machines (awesome-prometheus-alerts)."""
    memory_pressure: float = 0.10
    """Share of time in which some task waited for memory: a judgement, healthy machines show 0."""
    swap_bytes_per_s: float = 1 << 20
    """Swapped in while steps are steady: less may be another program waking up."""
    gpu_excess: float = 0.20
    """Utilisation beyond the job's own kernels; the driver's sampling alone makes 10 % of difference."""
    gpu_throttled: float = 0.20
    """Share of samples with clocks held down by heat or power delivery: less is a hot moment."""


_SPREAD = (0.7, 1.0)
"""Of the measured delay: part of it is the job's own threads and workers waiting for each other. A program of 1.6x won
back all of it when its neighbour was gone."""
_VISIBLE = 0.5
"""Share of the strangers' CPU time that the listed programs must explain to be the owners, and the first of them to be
named alone."""
_SWAP_PAGE_MS = 0.1
"""A 4 KiB page from a solid-state disk: 0.05 to 0.2 ms."""
_OUTSIDE = "somebody outside this container"


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """Time without a CPU first; only then who took it."""
    step, host = evidence.step, evidence.host
    signs = Signs(limits.others_cpus, limits.idle_cpus, limits.throttled_share)
    lack, split = lack_of_cpu(evidence, signs), compute(evidence, signs)
    if isinstance(step, Missing) or isinstance(lack, Missing) or isinstance(split, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    if isinstance(host, Missing):
        return cannot_tell(f"the machine was not sampled: {host}")
    case = _Case(evidence, step, host, lack, split, limits)
    findings = [
        *(_throttled(case) or _contention(case)),
        *_steal(case),
        *_memory(case),
        *gpu_findings(evidence, step, host, limits),
    ]
    if findings:
        return found(*findings, measurements=case.shared())
    if isinstance(step.run_delay_ms, Missing):
        return cannot_tell(f"the time without a CPU was not measured: {step.run_delay_ms}")
    reason = "the training thread waited {thread_delay} a step for a CPU; other processes used {others:core}, "
    if case.job_delay > limits.delay_share and host.others_cpus < limits.others_cpus:
        reason += "{idle:was|were} idle, so the job's threads wait for each other and not for strangers"
    else:
        reason += "{idle:was|were} idle"
    return clear(reason, *case.shared())


@dataclass(frozen=True, slots=True)
class _Case:
    evidence: Evidence
    step: Step
    host: Host
    lack: Lack
    split: Compute
    """The step without its wait for data, by cause."""
    limits: Limits

    @property
    def thread_delay_ms(self) -> float:
        """Of the training thread, per step; 0 when not measured."""
        return 0.0 if isinstance(self.lack.thread_ms, Missing) else self.lack.thread_ms

    @property
    def job_delay(self) -> float:
        """Share of the runnable time of all threads; 0 when not measured."""
        return 0.0 if isinstance(self.lack.job_share, Missing) else self.lack.job_share

    @property
    def owner(self) -> str:
        """Who took the CPU, as far as can be seen from here."""
        listed = self.host.neighbours
        if not listed or sum(neighbour.cpus for neighbour in listed) < _VISIBLE * self.host.others_cpus:
            return _OUTSIDE
        if listed[0].cpus >= _VISIBLE * self.host.others_cpus:
            return listed[0].who
        return f"{listed[0].who}, {listed[1].who}" + (" and others" if len(listed) > 2 else "")

    def shared(self) -> tuple[Measurement, ...]:
        host = self.host
        return (
            milliseconds("thread_delay", self.thread_delay_ms, "training thread without a CPU, per step"),
            share("job_delay", self.job_delay, "of its runnable time the job waited for a CPU"),
            Measurement("others", round(host.others_cpus, 2), "count", "cores used by other processes"),
            Measurement("idle", round(host.idle_cpus, 2), "count", "idle cores"),
            share("steal", host.steal_share, "of CPU time taken by the hypervisor"),
            *(
                Measurement(
                    f"neighbour_{number}",
                    f"{n.who}: {n.cpus:.2f} cores",
                    "text",
                    f"neighbour {number}",
                )
                for number, n in enumerate(self.host.neighbours[:3], 1)
            ),
        )

    def weighed(self, cost_ms: float) -> tuple[bool, float]:
        """Whether that is worth a finding, and its share of the step."""
        cost_share = cost_ms / self.step.step_ms
        return cost_share >= self.limits.min_share, cost_share


# -- the CPUs ---------------------------------------------------------------------------------------------


def _contention(case: _Case) -> list[Finding]:
    """Strangers on every CPU that the job may use."""
    limits, strangers = case.limits, case.lack.fraction(Cause.NEIGHBOURS)
    if strangers <= 0 or case.job_delay <= limits.delay_share:
        return []
    threads = case.evidence.threads
    team = not isinstance(threads, Missing) and threads.intra_op > 1
    # Not all of the run delay: it is counted over all steps, and a thread that computes for most of the step can have
    # lost no more than the rest of it.
    measured = case.split.ms(Cause.NEIGHBOURS)
    own_is_enough, cost_share = case.weighed(measured)
    cost, low, confidence = measured, _SPREAD[0] * measured, Confidence.HIGH
    # What was lost in collections goes with them, and is theirs to save.
    kept = case.step.working_ms / max(case.step.working_ms + case.step.parts.gc, 1e-9)
    method = "the measured time without a CPU; up to 30 % of it may be the job's own threads and workers"
    if not own_is_enough:
        # The training thread may be the one that spins while another thread of its team has no CPU.
        cost = case.job_delay * case.step.working_ms * strangers if team else 0.0
        worth, cost_share = case.weighed(cost)
        if not worth:
            return []
        low, kept, confidence = 0.0, 1.0, Confidence.LOW
        method = "a team of threads is as late as its last one, so at most the job's share of time without a CPU"
    owner = case.owner
    visible = owner != _OUTSIDE
    return [
        Finding(
            id="PD12.cpu-contention",
            severity=severity(cost_share, limits.min_share, limits.error_share),
            confidence=confidence,
            message="CPU time that this job needs goes to {owner}: it costs up to {cost_ms} a step, {cost_share} of it",
            reasoning="other processes used {others:core} while {idle:was|were} idle, and the job waited for a CPU for "
            "{job_delay} of its runnable time, its training thread {thread_delay} a step"
            + ("" if visible else "; no process that can be seen from here used that much"),
            evidence=(
                Measurement("owner", owner, "text", "who took it"),
                milliseconds("cost_ms", cost, "lost to others per step"),
                share("cost_share", cost_share, "of the step"),
                *case.shared(),
            ),
            fix=Fix(
                text=(
                    "End or move what else runs there, or give each its own CPUs"
                    if visible
                    else "Ask whoever schedules this machine for CPUs of your own"
                )
                + "; or use no more threads than the CPUs that are left.",
                code=f"taskset -c {_half(case.evidence.machine)} python train.py  # CPUs that nobody else uses",
                language="bash",
                risk="The other process may be somebody's work.",
            ),
            savings=savings(
                case.step,
                Part.COMPUTE,
                ceiling=kept * cost,
                low=kept * low,
                high=kept * cost * _SPREAD[1],
                method=method,
            ),
        )
    ]


def _half(machine: Machine) -> str:
    """Of the CPUs that the job may use, as `taskset` writes them."""
    last = max(1, machine.affinity_cpus // 2) - 1
    return f"0-{last}" if last else "0"


def _throttled(case: _Case) -> list[Finding]:
    """The control group's quota, when it is not the job's own number of threads that exceeds it (PD13)."""
    limits, step, lack = case.limits, case.step, case.lack
    periods = case.host.throttled_share
    if isinstance(periods, Missing) or not lack.throttled or lack.team_too_large:
        return []
    cost = min(max(case.thread_delay_ms, lack.stopped_ms), step.working_ms)
    worth, cost_share = case.weighed(cost)
    if not worth:
        return []
    return [
        Finding(
            id="PD12.throttled",
            severity=severity(cost_share, limits.min_share, limits.error_share),
            confidence=Confidence.HIGH,
            message="the control group's CPU quota stops the job in {periods} of its periods: it costs {cost_ms} a "
            "step, {cost_share} of it",
            reasoning="the group may use {quota:CPU}, and what runs in it, workers and other programs included, "
            "wants more",
            evidence=(
                share("periods", periods, "of quota periods throttled"),
                milliseconds("cost_ms", cost, "stopped per step"),
                share("cost_share", cost_share, "of the step"),
                Measurement("quota", case.evidence.machine.usable_cpus, "count", "CPUs that the quota allows"),
                *case.shared(),
            ),
            fix=Fix(
                text="Raise the container's CPU limit, or run less beside the training in it: fewer workers, no "
                "other programs.",
                code="docker update --cpus 8 NAME  # or resources.limits.cpu in Kubernetes",
                language="bash",
            ),
            savings=savings(
                step,
                Part.COMPUTE,
                ceiling=cost,
                low=_SPREAD[0] * cost,
                high=cost,
                method="the measured time without a CPU, or the time that the group was stopped",
            ),
        )
    ]


def _steal(case: _Case) -> list[Finding]:
    """CPU time that the hypervisor gave to other virtual machines."""
    host, limits, step = case.host, case.limits, case.step
    if host.steal_share <= limits.steal_share:
        return []
    seen = host.job_cpus + host.others_cpus + host.idle_cpus
    stolen = seen * host.steal_share / max(1e-9, 1 - host.steal_share)
    # Of the time that something wanted a CPU: an idle CPU is never stolen.
    part = stolen / max(1e-9, stolen + host.job_cpus + host.others_cpus)
    cost = min(part * step.cpu_ms, case.step.working_ms)
    worth, cost_share = case.weighed(cost)
    if not worth:
        return []
    return [
        Finding(
            id="PD12.steal",
            severity=severity(cost_share, limits.min_share, limits.error_share),
            confidence=Confidence.MEDIUM,
            message="the hypervisor gives {steal} of this machine's CPU time to other machines: about {cost_ms} a "
            "step, {cost_share} of it",
            reasoning="stolen time is counted by the kernel; nobody inside this machine can see who got it",
            evidence=(
                milliseconds("cost_ms", cost, "stolen per step, estimated"),
                share("cost_share", cost_share, "of the step"),
                *case.shared(),
            ),
            fix=Fix(
                text="Use an instance type with CPUs of its own (not a burstable one whose credits are spent), or "
                "another host."
            ),
            savings=savings(
                step,
                Part.COMPUTE,
                ceiling=cost,
                low=_SPREAD[0] * cost,
                high=cost,
                method="the stolen share of the CPU time that was wanted, of the training thread's CPU time",
            ),
        )
    ]


# -- memory -----------------------------------------------------------------------------------------------


def _memory(case: _Case) -> list[Finding]:
    """Waiting for pages that were swapped out or thrown away."""
    host, limits, step = case.host, case.limits, case.step
    pressure = 0.0 if isinstance(host.memory_pressure_share, Missing) else host.memory_pressure_share
    swap_rate = host.swap_in_bytes / host.seconds if host.seconds > 0 else 0.0
    if pressure <= limits.memory_pressure and swap_rate <= limits.swap_bytes_per_s:
        return []
    by_swap = swap_rate / 4096 * _SWAP_PAGE_MS * step.step_ms / 1000
    cost = min(max(pressure * step.step_ms, by_swap), case.step.working_ms)
    if not isinstance(step.run_delay_ms, Missing):
        cost = min(cost, case.split.ms(Cause.BLOCKED))
    worth, cost_share = case.weighed(cost)
    if not worth:
        return []
    machine = case.evidence.machine.memory_bytes
    own = host.peak_job_bytes >= 0.5 * machine
    return [
        Finding(
            id="PD12.memory-pressure",
            severity=severity(cost_share, limits.min_share, limits.error_share),
            confidence=Confidence.MEDIUM,
            message="memory is short: waiting for pages costs about {cost_ms} a step, {cost_share} of it",
            reasoning="the job itself holds {job_bytes} of the {machine_bytes} there are"
            if own
            else "the job holds {job_bytes} of {machine_bytes}; the rest is with other processes",
            evidence=(
                milliseconds("cost_ms", cost, "waiting for memory per step"),
                share("cost_share", cost_share, "of the step"),
                share("pressure", pressure, "of the time some task waited for memory"),
                Measurement("swap_rate", swap_rate, "bytes/s", "swapped in"),
                Measurement("job_bytes", host.peak_job_bytes, "bytes", "memory of the job, at most"),
                Measurement("machine_bytes", machine, "bytes", "memory of the machine or its control group"),
                Measurement("available_bytes", host.memory_available_bytes, "bytes", "memory left, at least"),
            ),
            fix=Fix(
                text="Let the job use less memory (fewer workers, smaller prefetch, no copy of the data set in each)"
                if own
                else "End what holds the memory, or ask for a larger limit.",
                risk="",
            ),
            savings=savings(
                step,
                Part.COMPUTE,
                ceiling=cost,
                low=_SPREAD[0] * cost,
                high=cost,
                method="the kernel's memory pressure and 0.1 ms for each page swapped in, at most the time in which "
                "the training thread was blocked",
            ),
        )
    ]


CHECK = Check(code="PD12", name="other-processes", title="other processes", limits=Limits(), examine=examine)
