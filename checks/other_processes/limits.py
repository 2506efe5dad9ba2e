"""From where on what other processes take is worth a finding."""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.causes import SIGNS


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
