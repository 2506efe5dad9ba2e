"""OpenMP threads: as many as the CPUs can run, and no fight over them.

What it looks at
----------------
Intra-op threads times ranks against the CPUs this job may use (affinity and cgroup quota), what the job's own
largest operators take with one thread, with the present number, and with as many as there are CPUs (timed in the
training process), run delay and throttling, workers and what binds them.

Why it costs time
-----------------
OpenMP threads meet at a barrier after each operator, and libgomp's wait for each other by spinning: 300,000 turns
when there are as many threads as CPUs. One busy neighbour is enough to make every barrier last a time slice: two
threads on two CPUs beside one neighbour took 31 to 66 times as long as one thread. A container's CPU quota does
the same, because no OpenMP runtime reads it. The other way round, torchrun sets one thread per rank.

Example
-------
    docker run --cpus 2 ...      # on 48 cores: torch starts 48 threads for 2 CPUs' worth of time
    torchrun --nproc-per-node 2  # sets OMP_NUM_THREADS=1, 7 of 8 cores idle

How to fix
----------
Set OMP_NUM_THREADS to usable CPUs divided by ranks; on a shared machine also OMP_WAIT_POLICY=PASSIVE. Let
binding variables not reach the data-loader workers.

When it stays silent
--------------------
When the present number is within 10 % of the best that was timed, whatever the settings say: 16 threads on two
idle CPUs were measured to cost only 4 %.

Limits
------
Operators are timed for some ten milliseconds in one place of the run; a neighbour that was idle just then is not
seen in the timings, only in the run delay. Nor are other ranks that wait at a collective just then: where ranks have
more threads than CPUs, the training thread's wait for a CPU counts as well. Pools of other libraries (OpenCV, BLAS of
NumPy) are counted, not timed.

References
----------
- Deeplearning4j, "How to debug performance issues", step 13
- GCC, libgomp manual: GOMP_SPINCOUNT
- llvm/llvm-project#225493, OpenMathLib/OpenBLAS#6059: quotas are ignored
- torch/distributed/run.py: "Setting OMP_NUM_THREADS environment variable for each process to be 1"
"""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.causes import SIGNS, Signs, ThreadGain, are_bound, lack_of_cpu, thread_gain
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
    location,
    milliseconds,
    savings,
    severity,
    share,
)
from perfdoctor.api.quantities import (
    Cause,
    Evidence,
    Lack,
    Loader,
    Missing,
    Step,
    Threads,
    ThreadTiming,
    WorkerThreads,
)


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


_TIMING_KEEPS = (0.5, 1.0)
"""Share of the timed operators' gain that the whole step keeps: small operators scale less than large ones."""
_WAITS_KEEP = (1.0, 2.5)
"""What threads that fit save, over the training thread's own wait for a CPU: it waits for its team as well, whose
threads lack CPUs too. 1.6 to 2.1 in three launches of two ranks with two threads each on two CPUs."""
_BINDING = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """The thread count by its timing, quota throttling, then the workers."""
    step, threads = evidence.step, evidence.threads
    lack = lack_of_cpu(evidence, Signs(throttled=limits.throttled))
    if isinstance(step, Missing) or isinstance(lack, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    if isinstance(threads, Missing):
        return cannot_tell(f"threads were not counted: {threads}")
    case = _Case(evidence, step, threads, lack, thread_gain(evidence), limits)
    findings = [*(case.thread_count() or case.crowded_ranks()), *case.workers()]
    if findings:
        return found(*findings, measurements=case.shared())
    if isinstance(case.gain, Missing):
        if threads.intra_op == 1 and case.demand <= case.usable:
            return clear("one thread a rank on {usable:usable CPU}: no thread waits for another", *case.shared())
        if case.demand <= case.usable and case.delay is not None and case.delay < limits.run_delay:
            return clear("{threads:thread} on {usable:usable CPU}, and none of them waited", *case.shared())
        return cannot_tell(
            "no operator could be timed with other numbers of threads, so what the present one costs is not known"
        )
    return clear(
        "with {threads:thread} on {usable:usable CPU} the largest operators take {timed} of the best time found",
        *case.shared(),
        Measurement("timed", case.gain.times, "ratio", "operator time over the best"),
    )


@dataclass(frozen=True, slots=True)
class _Case:
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
    def throttled(self) -> float:
        host = self.evidence.host
        if isinstance(host, Missing) or isinstance(host.throttled_share, Missing):
            return 0.0
        return host.throttled_share

    def shared(self) -> tuple[Measurement, ...]:
        found_timings = [
            milliseconds(
                f"with_{timing.threads}", timing.milliseconds, f"largest operators at threads={timing.threads}"
            )
            for timing in (() if isinstance(self.evidence.ops, Missing) else self.evidence.ops.thread_timings)
        ]
        return (
            Measurement("threads", self.threads.intra_op, "count", "intra-op threads"),
            Measurement("ranks", self.ranks, "count", "ranks on this machine"),
            Measurement("usable", self.usable, "count", "usable CPUs"),
            *(() if self.delay is None else (share("delay", self.delay, "of its runnable time waiting for a CPU"),)),
            *found_timings,
        )

    # -- the number of threads ----------------------------------------------------------------------------

    def thread_count(self) -> list[Finding]:
        """Another number of threads, when timed operators say that it pays."""
        if isinstance(self.gain, Missing):
            return []
        best, ceiling = self.gain.best, self.gain.saved_ms
        if best.threads > self.threads.intra_op and not self.threads.torchrun_default:
            return []  # fewer threads than CPUs were chosen by the job or its caller: that is their decision
        if best.threads == self.threads.intra_op or ceiling / self.step.step_ms < self.limits.min_share:
            return []
        name, message, reasoning = self._diagnosis(best)
        low, high = (fraction * ceiling for fraction in _TIMING_KEEPS)
        return [
            Finding(
                id=f"PD13.{name}",
                severity=severity(ceiling / self.step.step_ms, self.limits.min_share, self.limits.error_share),
                confidence=Confidence.HIGH if self.gain.fraction > 0.3 else Confidence.MEDIUM,
                message=message,
                reasoning=reasoning,
                evidence=(
                    *self.shared(),
                    Measurement("best", best.threads, "count", "best number of threads found"),
                    Measurement("slower", self.gain.times, "ratio", "operators now over the best"),
                    share("throttled", self.throttled, "of quota periods throttled"),
                ),
                location=location(self.threads.set_at),
                fix=self._fix(name, best.threads),
                savings=savings(
                    self.step,
                    Part.COMPUTE,
                    ceiling=ceiling,
                    low=low,
                    high=high,
                    method="the job's largest operators timed in its own process with each number of threads; the "
                    "rest of the step gains half of that or all",
                ),
            )
        ]

    def crowded_ranks(self) -> list[Finding]:
        """Ranks that have more threads than CPUs, and wait for them. A rank's operators do not show it when they are
        timed while the other ranks wait at a collective."""
        fits, waits = int(self.usable) // self.ranks, self.lack.thread_ms
        if self.ranks == 1 or fits < 1 or not self.lack.team_too_large or isinstance(waits, Missing):
            return []
        waited = waits * self.lack.fraction(Cause.OWN_THREADS)
        cost_share = waited / self.step.step_ms
        if cost_share < self.limits.min_share:
            return []
        low, high = (fraction * waited for fraction in _WAITS_KEEP)
        return [
            Finding(
                id="PD13.too-many-threads",
                severity=severity(cost_share, self.limits.min_share, self.limits.error_share),
                confidence=Confidence.MEDIUM,
                message=f"{self._team} on {{usable:usable CPU}}: the training thread waits {{waited_ms}} a step for a "
                "CPU, {waited_share} of it",
                reasoning="threads that find no CPU keep the others waiting at each operator's end",
                evidence=(
                    *self.shared(),
                    milliseconds("waited_ms", waited, "of the training thread for a CPU that the job itself had"),
                    share("waited_share", cost_share, "of the step"),
                    Measurement("best", fits, "count", "threads a rank for which there are CPUs"),
                ),
                location=location(self.threads.set_at),
                fix=self._fix("too-many-threads", fits),
                savings=savings(
                    self.step,
                    Part.COMPUTE,
                    ceiling=high,
                    low=low,
                    high=high,
                    method="the training thread's wait for a CPU, and up to 1.5 times as much for its team, whose "
                    "threads wait too",
                ),
            )
        ]

    @property
    def _team(self) -> str:
        return "{threads:thread}" if self.ranks == 1 else "{ranks:rank} of {threads:thread} each"

    def _diagnosis(self, best: ThreadTiming) -> tuple[str, str, str]:
        fewer = best.threads < self.threads.intra_op
        slower = "the largest operators take {slower} of the time they take with {best:thread}"
        if not fewer:
            return (
                "torchrun-single-thread",
                "torchrun gave each rank one thread while {usable:CPU serves|CPUs serve} {ranks:rank}: " + slower,
                "OMP_NUM_THREADS was not set, so torchrun set it to 1",
            )
        if self.lack.throttled:
            return (
                "more-threads-than-quota",
                f"{self._team} share a quota of {{usable:CPU}}: " + slower,
                "the job was throttled in {throttled} of its periods; OpenMP does not read the quota",
            )
        if self.lack.team_too_large:
            return (
                "too-many-threads",
                f"{self._team} on {{usable:usable CPU}}: " + slower,
                "threads that find no CPU keep the others waiting at each operator's end",
            )
        if self.delay is not None and self.delay > self.limits.run_delay:
            # Unseen processes count: somebody took the CPUs, and the team alone fits them.
            whom = (
                "the job's own other threads and workers" if self.lack.other_processes is False else "other processes"
            )
            return (
                "spin-collapse",
                f"{{threads:thread fights|threads fight}} with {whom} for {{usable:CPU}}: " + slower,
                "there are as many threads as CPUs, so OpenMP's wait for each other by spinning, and the job waits for "
                "a CPU {delay} of its runnable time",
            )
        return (
            "too-many-threads",
            "{threads:thread is|threads are} too many for operators this small: " + slower,
            "starting and joining threads takes longer than they save",
        )

    def _fix(self, name: str, best: int) -> Fix:
        lines = f"OMP_NUM_THREADS={best}"
        if name == "spin-collapse":
            lines += " OMP_WAIT_POLICY=PASSIVE"
        program = "torchrun ..." if "torchrun" in name else "python train.py"
        return Fix(
            text="Run with {best:thread}"
            + (
                ", and let waiting threads sleep instead of spin."
                if name == "spin-collapse"
                else " per rank."
                if self.ranks > 1
                else "."
            ),
            code=f"{lines} {program}\n# or, in the program: torch.set_num_threads({best})",
            language="bash",
            risk="Sums are taken in another order, so the last digits of results may differ.",
            remedies=(f"threads={best}", "threads.passive") if name == "spin-collapse" else (f"threads={best}",),
        )

    # -- workers ------------------------------------------------------------------------------------------

    def workers(self) -> list[Finding]:
        """Workers that all sit on the same few CPUs, because a binding variable put them there."""
        loaders = self.evidence.loaders
        if isinstance(loaders, Missing):
            return []
        return [
            finding
            for loader in loaders
            if not isinstance(loader.worker_threads, Missing)
            and (finding := self._pinned(loader, loader.worker_threads)) is not None
        ]

    def _pinned(self, loader: Loader, workers: WorkerThreads) -> Finding | None:
        binding = [name for name in _BINDING if self.threads.variable(name)]
        wait = self.step.parts.input_wait
        if not binding or not are_bound(self.evidence, loader) or wait / self.step.step_ms < self.limits.min_share:
            return None
        return Finding(
            id="PD13.workers-pinned",
            severity=severity(wait / self.step.step_ms, self.limits.min_share, self.limits.error_share),
            confidence=Confidence.HIGH,
            message="all {workers:worker} run on the same {cpus:CPU}, and the loop waits {wait_ms} a step for them",
            reasoning="{binding} binds the main thread to a CPU when torch is imported, and workers inherit that",
            evidence=(
                Measurement("workers", loader.num_workers, "count", "workers"),
                Measurement("cpus", workers.affinity_cpus, "count", "CPUs a worker may use"),
                milliseconds("wait_ms", wait, "wait for data per step"),
                Measurement("binding", ", ".join(binding), "text", "variables that bind"),
            ),
            location=location(loader.site),
            fix=Fix(
                text="Drop the variable, or give the workers their CPUs back.",
                code="def unbind(worker_id):\n    os.sched_setaffinity(0, range(os.cpu_count()))\n\n"
                "loader = DataLoader(..., worker_init_fn=unbind)",
            ),
            savings=savings(
                self.step,
                Part.INPUT_WAIT,
                ceiling=wait,
                low=0.3 * wait,
                high=0.95 * wait,
                method="the measured wait; how much of it goes depends on the CPUs that the workers get",
            ),
        )


CHECK = Check(code="PD13", name="omp-threads", title="OpenMP threads", limits=Limits(), examine=examine)
