"""Who had the CPUs that the job wanted."""

from __future__ import annotations

from dataclasses import dataclass

from ..model import Cause, Evidence, Host, Lack, Loader, Missing, Step


@dataclass(frozen=True, slots=True)
class Signs:
    """From where on a quantity is a sign of contention: for all who ask, unless they were configured otherwise."""

    others_cpus: float = 0.3
    """CPU of other processes, in cores; below, the job fights with itself."""
    idle_cpus: float = 0.5
    """With half a core idle on average, a neighbour is not what the job waits for."""
    throttled: float = 0.05
    """Share of quota periods in which the job was stopped."""
    delay_share: float = 0.10
    """Of its runnable time, waited for a CPU: the field's threshold for contention."""


SIGNS = Signs()


def lack_of_cpu(evidence: Evidence, signs: Signs = SIGNS) -> Lack | Missing:
    """The time without a CPU and its owners, in the order of the package's docstring."""
    step, host, machine = evidence.step, evidence.host, evidence.machine
    if isinstance(step, Missing):
        return step
    threads = evidence.threads
    job_share = _job_share(step, host)
    return Lack(
        thread_ms=step.run_delay_ms,
        job_share=job_share,
        stopped_ms=_stopped_ms(step, host, machine.affinity_cpus),
        owners=host if isinstance(host, Missing) else _owners(host, job_share, signs),
        demand=0 if isinstance(threads, Missing) else threads.intra_op * max(1, evidence.job.local_ranks),
        usable_cpus=max(1.0, machine.usable_cpus),
        throttled=not isinstance(host, Missing) and _is_throttled(host, signs),
        other_processes=host if isinstance(host, Missing) else host.others_cpus >= signs.others_cpus,
    )


def are_bound(evidence: Evidence, loader: Loader) -> bool:
    """Whether all workers of a loader sit on the same CPUs, fewer than the job could use when it started."""
    workers, threads = loader.worker_threads, evidence.threads
    if isinstance(workers, Missing) or isinstance(threads, Missing):
        return False
    return workers.affinity_cpus < threads.launch_affinity_cpus and workers.distinct_affinities == 1


def _job_share(step: Step, host: Host | Missing) -> float | Missing:
    if not isinstance(host, Missing) and not isinstance(host.job_run_delay_share, Missing):
        return host.job_run_delay_share
    delay = step.run_delay_ms
    if isinstance(delay, Missing):
        return delay
    return delay / (delay + step.cpu_ms) if delay + step.cpu_ms > 0 else 0.0


def _stopped_ms(step: Step, host: Host | Missing, cpus: int) -> float:
    """The group's time is summed over its CPUs. Newer kernels take a stopped thread off the queue: no run delay."""
    if isinstance(host, Missing) or isinstance(host.throttled_time_share, Missing):
        return 0.0
    return min(1.0, host.throttled_time_share / max(1, cpus)) * step.step_ms


def _is_throttled(host: Host, signs: Signs) -> bool:
    return not isinstance(host.throttled_share, Missing) and host.throttled_share > signs.throttled


def _owners(host: Host, job_share: float | Missing, signs: Signs) -> tuple[tuple[Cause, float], ...]:
    delay = 0.0 if isinstance(job_share, Missing) else min(job_share, 0.99)
    wanted = host.job_cpus / (1 - delay)
    lacking = wanted - host.job_cpus
    there = host.job_cpus + host.others_cpus + host.idle_cpus
    quota = _quota_fraction(host, lacking, signs)
    beyond = min(1.0, max(0.0, wanted - there) / lacking) if lacking > 0 else 0.0
    others, full = host.others_cpus >= signs.others_cpus, host.idle_cpus < signs.idle_cpus
    rest = (1 - quota) * (1 - beyond)
    return (
        (Cause.QUOTA, quota),
        (Cause.OWN_THREADS, (1 - quota) * beyond + (0.0 if others else rest)),
        (Cause.NEIGHBOURS, rest if others and full else 0.0),
        (Cause.NO_CPU, rest if others and not full else 0.0),
    )


def _quota_fraction(host: Host, lacking: float, signs: Signs) -> float:
    """Of the CPUs that were lacking, those that the quota took; all, where only its periods are known."""
    if not _is_throttled(host, signs):
        return 0.0
    stopped = host.throttled_time_share
    if isinstance(stopped, Missing) or lacking <= 0:
        return 1.0
    return min(1.0, stopped / lacking)
