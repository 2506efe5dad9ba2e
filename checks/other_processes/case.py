"""What every finding about other processes needs, and from where on what they take is worth one."""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.causes import SIGNS
from perfdoctor.api.findings import Cost, Measurement, Severity, milliseconds, share
from perfdoctor.api.quantities import Compute, Evidence, Host, Lack, Missing, Step


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
    """CPU of other processes, in cores, from which on they may be the cause; below, the job's own threads compete."""
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


_VISIBLE = 0.5
"""Share of other processes' CPU time that the listed programs must explain to be the owners, and the first of them to
be named alone."""
OUTSIDE = "processes outside this container"
WAITED = (0.7, 1.0)
"""Of the measured delay: part of it is the job's own threads and workers waiting for each other. A program of 1.6x won
back all of it when its neighbour was gone."""


@dataclass(frozen=True, slots=True)
class Case:
    """A steady step, and the machine that it ran on."""

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
            return OUTSIDE
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
                Measurement(f"neighbour_{number}", round(n.cpus, 2), "count", f"cores used by {n.who}")
                for number, n in enumerate(self.host.neighbours[:3], 1)
            ),
        )

    def worth(self, cost_ms: float) -> Cost | None:
        """That cost, if it is worth a finding."""
        cost = Cost(self.step, cost_ms)
        return cost if cost.share >= self.limits.min_share else None

    def severity(self, cost: Cost) -> Severity:
        """By the share of the step."""
        return cost.severity(self.limits.min_share, self.limits.error_share)
