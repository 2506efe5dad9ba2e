"""What every finding about the number of threads needs, and from where on another is worth a finding."""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.causes import SIGNS, ThreadGain
from perfdoctor.api.findings import Fix, Measurement, milliseconds, share
from perfdoctor.api.quantities import Evidence, Lack, Missing, Step, Threads

_BINDING = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds."""

    min_share: float = 0.10
    """Share of the step that another number of threads would save, from timed operators: their noise is 5 %."""
    error_share: float = 0.25
    """A judgement: far above what the choice between two sane numbers of threads is worth."""
    run_delay: float = SIGNS.delay_share
    """Share of its runnable time that the job waits for a CPU, from which on CPUs are contended."""
    throttled: float = SIGNS.throttled
    """Share of quota periods in which the job was throttled."""


@dataclass(frozen=True, slots=True)
class Case:
    """A steady step, its threads, and what another number of them would save."""

    evidence: Evidence
    step: Step
    threads: Threads
    lack: Lack
    gain: ThreadGain | Missing
    limits: Limits

    @property
    def usable(self) -> float:
        return self.lack.usable_cpus

    @property
    def ranks(self) -> int:
        return max(1, self.evidence.job.local_ranks)

    @property
    def demand(self) -> int:
        return self.lack.demand

    @property
    def delay(self) -> float | None:
        """Share of its runnable time that the job waited for a CPU; of the training thread where no more is known."""
        return None if isinstance(self.lack.job_share, Missing) else self.lack.job_share

    @property
    def idle(self) -> float | None:
        """CPUs of the machine that nobody used; None where that is not known."""
        return None if isinstance(self.evidence.host, Missing) else self.evidence.host.idle_cpus

    @property
    def throttled(self) -> float:
        host = self.evidence.host
        if isinstance(host, Missing) or isinstance(host.throttled_share, Missing):
            return 0.0
        return host.throttled_share

    @property
    def binding(self) -> tuple[str, ...]:
        """Variables that bind the thread that imports torch to some CPUs."""
        return tuple(name for name in _BINDING if self.threads.variable(name))

    def shared(self) -> tuple[Measurement, ...]:
        gain = self.gain
        timed = "forward and backward" if not isinstance(gain, Missing) and gain.of_passes else "largest operators"
        found_timings = [
            milliseconds(f"with_{timing.threads}", timing.milliseconds, f"{timed} at threads={timing.threads}")
            for timing in (() if isinstance(gain, Missing) else gain.timings)
        ]
        return (
            Measurement("threads", self.threads.intra_op, "count", "intra-op threads"),
            Measurement("ranks", self.ranks, "count", "ranks on this machine"),
            Measurement("usable", self.usable, "count", "usable CPUs"),
            *(() if self.idle is None else (Measurement("idle", round(self.idle, 1), "count", "CPUs idle"),)),
            *(() if self.delay is None else (share("delay", self.delay, "of its runnable time waiting for a CPU"),)),
            *found_timings,
        )

    @property
    def team(self) -> str:
        """The present threads, as a template."""
        return "{threads:thread}" if self.ranks == 1 else "{ranks:rank} of {threads:thread} each"


def fewer_threads(case: Case, best: int, *, program: str = "python train.py", asleep: bool = False) -> Fix:
    """That many, from the environment; `asleep`: threads that wait for each other do not spin."""
    per_rank = " per rank" if case.ranks > 1 and not asleep else ""
    variables = f"OMP_NUM_THREADS={best}" + (" OMP_WAIT_POLICY=PASSIVE" if asleep else "")
    return Fix(
        text="Run with {best:thread}"
        + (", and let waiting threads sleep instead of spin." if asleep else f"{per_rank}."),
        code=f"{variables} {program}\n# or, in the program: torch.set_num_threads({best})",
        language="bash",
        risk="Sums are taken in another order, so the last digits of results may differ.",
        remedies=(f"threads={best}", "threads.passive") if asleep else (f"threads={best}",),
    )
